"""Remove an item with all that rests on it, and cut what it cites out of what stays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engrain.core.model.plans import Forget, Outcome
from engrain.core.rules.removal import cites_any_span, cut_spans, shift_offset
from engrain.core.rules.traits import detect_traits
from engrain.core.text.passages import Span, index_words
from engrain.stores.postgres.dialect import load_statements
from engrain.stores.postgres.index_rows import count_words, write_words
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL = load("forget.sql")


def forget(work: Work, step: Forget) -> Outcome:
    asked, closure, spans = found(work, step)
    if not asked:
        return Outcome(step.id, "missing")
    if step.unchanged_since is not None and _changed(work, closure, step.unchanged_since):
        return Outcome(step.id, "stale")
    # What is left may be summed up in the same words.
    entombed = {number for number, _, kind, *_ in closure if kind != "summary" or number in asked}
    remove(work, [(number, id_, *rest) for number, id_, _, *rest in closure], entombed)
    gone = {row[0] for row in closure}
    marked = [_cut(work, number, cuts) for number, cuts in spans.items() if number not in gone]
    work.db.run(_SQL["sweep_later"])
    return Outcome(step.id, "forgotten", tuple(row[1] for row in closure if row[1] != step.id), tuple(marked))


def found(work: Work, step: Forget) -> tuple[list[int], list[Row], dict[int, list[Span]]]:
    """The item with its corrected versions, all that goes, and what is cut out of what stays."""
    asked = [n for (n,) in work.db.rows(_SQL["asked"], {"scope": work.owner, "id": step.id})]
    closure = _closure(work, asked)
    gone = [row[0] for row in closure]
    spans = {} if step.keep_source else _cited_spans(work, gone, asked)
    resting = _resting(work, spans) - set(gone)
    return asked, _closure(work, [*gone, *resting]) if resting else closure, spans


def _closure(work: Work, numbers: Sequence[int]) -> list[Row]:
    return list(work.db.rows(_SQL["closure"], {"scope": work.owner, "start": list(numbers)}))


def _cited_spans(work: Work, gone: Sequence[int], asked: Sequence[int]) -> dict[int, list[Span]]:
    """By item that stays. A cite of a whole item counts only if it is the forgotten item's own: else forgetting one
    message would take what rests on several with it, and that would take the others."""
    spans: dict[int, list[Span]] = {}
    for item, cited, start, end, length in work.db.rows(_SQL["cited_spans"], {"scope": work.owner, "gone": list(gone)}):
        if item in asked or start is not None or end is not None:
            spans.setdefault(cited, []).append((start or 0, length if end is None else end))
    return spans


def _resting(work: Work, spans: Mapping[int, Sequence[Span]]) -> set[int]:
    """What cites words that are cut."""
    rows = work.db.rows(_SQL["cites_of"], (work.owner, list(spans))) if spans else []
    return {item for item, cited, start, end in rows if cites_any_span(start, end, spans[cited])}


def _changed(work: Work, closure: Sequence[Row], since: int) -> bool:
    values = {"scope": work.owner, "numbers": [row[0] for row in closure], "since": since}
    return bool(work.db.rows(_SQL["changed"], values))


def remove(work: Work, closure: Sequence[Row], entombed: Collection[int]) -> None:
    """Items, as (n, id, text, session, place); a tombstone of those that are to be entombed."""
    for number, id_, text, session, place in closure:
        if number in entombed:
            _entomb(work, text)
        _uncover(work, session, place)
        work.change(_SQL["add_gone"], (work.owner, number, id_))
    numbers = [row[0] for row in closure]
    for statement in ("remove_words", "remove_vectors", "remove"):
        work.db.run(_SQL[statement], (work.owner, numbers))


def _cut(work: Work, number: int, spans: list[Span]) -> str:
    """The item stays, with a mark in place of each span; its vectors are made anew by whoever embeds."""
    ((id_, text, session, place, speaker, role, slot),) = work.db.rows(_SQL["cut_from"], (work.owner, number))
    for piece in (text, *(text[start:end] for start, end in spans)):
        _entomb(work, piece)
    _uncover(work, session, place)
    after = cut_spans(text, spans)
    words = index_words(after, speaker, slot)
    # A hash of its own: two items cut to the same words are still two.
    values = {"text": after, "hash": work.digest("cut", id_, after), "traits": detect_traits(after, role)}
    values |= {"passages": words.passages, "words": count_words(words), "scope": work.owner, "n": number}
    work.change(_SQL["cut"], values)
    work.db.run(_SQL["cut_entities"], (work.owner, number))
    work.db.run(_SQL["remove_episodes"], (work.owner, [number]))
    for statement in ("remove_words", "remove_vectors"):
        work.db.run(_SQL[statement], (work.owner, [number]))
    write_words(_Statements(work.db), work.owner, [(number, words)])  # type: ignore[arg-type]
    for row, citing, start, end in work.db.rows(_SQL["cites_into"], (work.owner, number)):
        where = (shift_offset(start, spans), shift_offset(end, spans), work.owner, row)
        work.db.run(_SQL["move_cite"], where)
        work.change(_SQL["mark"], (work.owner, citing))
    return str(id_)


class _Statements:
    """Named statements on a bare connection, until the last caller has a transaction."""

    def __init__(self, db: Db) -> None:
        self._db = db

    def run(self, name: str, **values: Any) -> None:
        self._db.run(load_statements()[name].sql, values)


def _entomb(work: Work, text: str) -> None:
    work.db.run(_SQL["add_tombstone"], (work.owner, work.digest("text", text), work.micros))


def _uncover(work: Work, session: str | None, place: int | None) -> None:
    """A summary that covers a forgotten message loses its text, and one that is being made will not be stored."""
    if session is not None and place is not None:
        work.db.run(_SQL["uncover"], {"scope": work.owner, "session": session, "place": place})
