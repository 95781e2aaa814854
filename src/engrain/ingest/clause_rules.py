"""Match the words of a clause with the rules: the fact that it states, its slot, and the value that it corrects."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from engrain.core.model.items import ForgetRequest, Statement
from engrain.core.rules.own_words import blank_pasted
from engrain.core.rules.slot_names import classify_thing, fill_slot, find_mentioned_slot
from engrain.core.rules.statements import ANY_WORD, Rule, compile_pattern, load_statement_rules
from engrain.core.text.passages import Clause, split_clauses, split_sentences

_PLAIN_WORD = re.compile(r"[\w']+")
_MAX_LEADS = 8
_MAX_INTRODUCTION = 300  # characters
_OF_OTHERS = re.compile(
    r"\b(?:my|our|his|her|mein\w*|unser\w*|mi|mis|nuestr[oa]s?|mon|ma|mes|notre|nos)\b", re.IGNORECASE
)
_MAX_TOPIC_CHARACTERS = 2_000
_MAX_VALUE_WORDS = 8
_MAX_UNCAPITALIZED_WORDS = 2
_NAME = r"(?:[^\W\d_a-zß-ÿ][\w'’.-]*)(?: (?:(?:van|von|de|del|da|la|le|der|den) )*[^\W\d_a-zß-ÿ][\w'’.-]*){0,2}"
_SHAPES = {
    "name": re.compile(_NAME),
    "number": re.compile(r".*\d.*"),
    "date": re.compile(rf".*\d.*|{_NAME}"),
    "mail": re.compile(r"\S+@\S+"),
    "pair": re.compile(r"\w+/\w+(?:/\w+)?"),
}


@dataclass(frozen=True, slots=True)
class ClauseFact:
    kind: str
    slot: str | None
    holds: bool  # even if a passing time is named with it


def skip_lead(shown: str, start: int, end: int) -> int:
    """Return the start of a clause's content, behind "oh, by the way," and the like."""
    lead = load_statement_rules().sign("lead")
    for _ in range(_MAX_LEADS):
        match = lead.match(shown, start, end)
        if match is None or match.end() == start:
            break
        start = match.end()
    return start


def match_fact(shown: str, text: str, start: int, end: int) -> ClauseFact | None:
    """Return the fact that the words from `start` to `end` state. `text` is `shown` with nothing blanked."""
    word = _PLAIN_WORD.match(shown, start, end)
    first = word[0].lower() if word else ""
    found = _match_rules(first, shown, text, start, end)
    if found:
        return found
    rules = load_statement_rules()
    subject = rules.dropped.get(first) or (rules.run_on.get(first) if _follows_introduction(shown, start) else None)
    if not subject:
        return None
    return _match_rules(subject.split()[0], subject + shown[start:end], subject + text[start:end])


def split_run_on(shown: str, clauses: Sequence[Clause]) -> list[Clause]:
    """Split an introduction where a clause leaves out its subject: "I'm Tom, live in Bristol and work as a nurse"."""
    parts: list[Clause] = []
    for one in clauses:
        start, connector = one.start, one.connector
        for gap in _find_run_on().finditer(shown, one.start, one.end):
            if _follows_introduction(shown, gap.end()):
                parts.append(Clause(start, gap.start(), connector))
                start, connector = gap.end(), gap[0].strip(" ,").lower()
        parts.append(Clause(start, one.end, connector))
    return parts


@cache
def _find_run_on() -> re.Pattern[str]:
    words = "|".join(map(re.escape, load_statement_rules().run_on))
    return re.compile(rf"(?:, ?|,? (?:and|but|und|aber|y|pero|et|mais) )(?=(?:{words})\b)", re.IGNORECASE)


def _follows_introduction(shown: str, start: int) -> bool:
    """Tell if the sentence begins with the speaker's name, "I'm Tom", and has spoken of nobody else since."""
    begin = max(shown.rfind(mark, max(0, start - _MAX_INTRODUCTION), start) for mark in ".!?\n") + 1
    if start - begin > _MAX_INTRODUCTION:
        return False
    begin = skip_lead(shown, begin + (shown[begin : begin + 1] == " "), start)
    introduces = load_statement_rules().sign("introduces").match(shown, begin, start)
    return introduces is not None and _OF_OTHERS.search(shown, introduces.end(), start) is None


def _match_rules(first: str, shown: str, text: str, start: int = 0, end: int = sys.maxsize) -> ClauseFact | None:
    rules = load_statement_rules()
    elided = first.partition("'")[0] + "'"  # "j'" lists the rules for "j'habite"
    word = first if first in rules.by_word else elided if elided in rules.by_word else ANY_WORD
    for pattern, rule in _list_rules(word):
        match = pattern.match(shown, start, end)
        if match:
            alone = rules.sign("beside").match(shown, start, end) is None
            return ClauseFact(rule.kind, fill_slot(rule, match, text) if alone else None, rule.holds)
    return None


@cache
def _list_rules(word: str) -> list[tuple[re.Pattern[str], Rule]]:
    return [(rule.pattern, rule) for rule in load_statement_rules().by_word[word]]


def match_right_value(shown: str, start: int, end: int, *, sure: bool) -> re.Match[str] | None:
    """Match words that give a right value for a wrong one. Unless that is `sure`, they must look like a value."""
    rules = load_statement_rules()
    for pattern in rules.asks["right"]:
        match = compile_pattern(pattern).match(shown, start, end)
        if match is None:
            continue
        value = match.start("value")
        if rules.sign("likely").match(shown, value, end):
            return match
        short = len(_PLAIN_WORD.findall(shown, value, end)) <= _MAX_VALUE_WORDS
        if sure and short and not rules.sign("no_value").match(shown, value, end):
            return match
    return None


def fits_slot(slot: str, value: str, *, sure: bool) -> bool:
    """Check that a value has the form that a slot needs. In a `sure` correction a name needs no capital letter."""
    rules = load_statement_rules()
    value = rules.sign("beside_value").sub("", value.strip()).strip(" .,!\"'“”*")
    leaf = slot.rpartition(".")[2]
    if leaf in rules.classes.values() or slot.startswith("user.prefers."):
        return classify_thing(value, by_head=True) == leaf
    shape = rules.shapes.get(leaf)
    if shape == "state":
        return any(
            (found := match_fact(one, one, 0, len(one))) and found.slot == slot
            for one in (f"i'm {value}", f"i'm a {value}")
        )
    if shape in ("number", "date", "mail", "pair"):
        return _SHAPES[shape].fullmatch(value) is not None
    words = value.lower().split()
    if not words or not rules.words["no_name"].isdisjoint(words):
        return False
    plain = sure and len(words) <= _MAX_UNCAPITALIZED_WORDS and all(word.isalpha() for word in words)
    number = shape is None and _SHAPES["number"].fullmatch(value) is not None
    return plain or number or _SHAPES["name"].fullmatch(value) is not None


def find_topic_slot(before: Sequence[tuple[str, str]]) -> str | None:
    """Return the slot that the last message is about: stated by the user, or stated or asked by the assistant.

    Earlier messages do not count: a "no" answers the last one.
    """
    if not before:
        return None
    role, text = before[-1]
    shown = blank_pasted(text[-_MAX_TOPIC_CHARACTERS:])
    return _find_last_slot(shown if role == "user" else _swap_persons(shown))


def _find_last_slot(shown: str) -> str | None:
    """Return the slot of the last sentence that is not a mere courtesy."""
    rules = load_statement_rules()
    courtesy = rules.sign("courtesy")
    sentences = [one for one in split_sentences(shown) if not courtesy.fullmatch(shown, one.start, one.end)]
    if not sentences:
        return None
    sentence = sentences[-1]
    for clause in reversed(split_clauses(shown, sentence, rules.sign("breaks"), rules.sign("opens"))):
        found = match_fact(shown, shown, skip_lead(shown, clause.start, clause.end), clause.end)
        if found and found.slot:
            return found.slot
    return find_mentioned_slot(shown[sentence.start : sentence.end])


def _swap_persons(shown: str) -> str:
    """Rewrite the assistant's words as the user's: "you live in Lima" becomes "I live in Lima".

    The assistant's statements about itself become those of a third person.
    """
    turned = dict(load_statement_rules().turned)
    own = {word: "they" for word in turned.values() if word not in ("am", *turned)}
    words = own | turned
    return _PLAIN_WORD.sub(lambda match: words.get(match[0].lower(), match[0]), shown)


def keep_last_per_slot(found: Sequence[Statement | ForgetRequest]) -> list[Statement | ForgetRequest]:
    """Sort the statements. Of two values for one slot, only the last fills it."""
    ordered = sorted(found, key=lambda one: one.start)
    last = {one.slot: one for one in ordered if isinstance(one, Statement)}
    earlier = [one for one in ordered if isinstance(one, Statement) and last[one.slot] is not one]
    return [replace(one, slot=None) if one in earlier else one for one in ordered]
