"""Tell when a statement gives another value for the same matter as an older one, so that only the newer holds."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.rules.change_cues import Cues, find_signs, find_values, load_joined_patterns, read_cues
from engrain.core.rules.change_limits import are_of_other_things, fold_text, read_subject

_BESIDE = frozenset(("beside", "passing", "tentative"))
_UNNAMED = frozenset(("money", "contact"))  # aspects of which "I pay 990 now" needs no name


def gives_another_value(statement: str, other: str, aspects: tuple[str, str]) -> bool:
    """Tell if a statement gives another value for what an older one says. `aspects` are theirs, the newer first."""
    aspect = aspects[0] if aspects[0] == aspects[1] else None
    signs = find_signs(statement)
    if signs & _BESIDE or not _may_share_subject(read_cues(statement), read_cues(other)):
        return False
    resumes = _says("resumed", statement) and not _says("resumed", other)
    older = aspect == "age" and _have_other_values(statement, other)
    amount = "changed" in signs and _changes_amount(statement, other, aspect)
    return resumes or older or amount or _moves(statement, other, aspects[1])


def opposes_wish(statement: str, other: str) -> bool:
    """Tell if two wishes about all answers cannot both be met: short and long ones, or two languages."""
    if _says("part", statement) or _says("part", other):
        return False
    short, long = (_says("short", statement), _says("short", other)), (_says("long", statement), _says("long", other))
    if (short, long) in (((True, False), (False, True)), ((False, True), (True, False))):
        return True
    tongues = [_load_patterns()["language"].findall(fold_text(text)) for text in (statement, other)]
    return all(len(some) == 1 for some in tongues) and tongues[0] != tongues[1] and _says("answers", statement)


def find_denied_name(text: str) -> str | None:
    """Return the name by which the speaker no longer wants to be called: "don't call me Kat"."""
    found = _load_patterns()["not_named"].search(fold_text(text))
    return found and next(name for name in found.groups() if name)


def _changes_amount(statement: str, other: str, aspect: str | None) -> bool:
    if not _have_other_values(statement, other) or are_of_other_things(statement, other):
        return False
    subject = read_subject(statement)
    return subject <= read_cues(other).terms if subject else aspect in _UNNAMED


def _have_other_values(statement: str, other: str) -> bool:
    """Tell if both have one price, day or number, and not the same one."""
    said, known = find_values(statement), find_values(other)
    return any(len(said[kind]) == len(known[kind]) == 1 and said[kind] != known[kind] for kind in said.keys() & known)


def _moves(statement: str, other: str, aspect: str) -> bool:
    """Tell if a statement gives a new home, employer or profession."""
    places = (("moved", "home"), ("hired", "employer"))
    return any(_says(to, statement) and _says(at, other) for to, at in places) or (
        _says("role", statement) and (aspect == "job" or _says("role", other))
    )


def _may_share_subject(statement: Cues, other: Cues) -> bool:
    """Tell if both are about the speaker, or about the same person."""
    named = not statement.people and bool(statement.names & other.names)
    return named or (statement.people <= other.people if other.people else not statement.people)


def _says(name: str, text: str) -> bool:
    return _load_patterns()[name].search(fold_text(text)) is not None


@cache
def _load_patterns() -> dict[str, re.Pattern[str]]:
    return load_joined_patterns("change_values.toml")
