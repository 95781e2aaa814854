"""Name the slot that a statement fills: a key with one current value, such as `user.city`."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.rules.statements import Rule, compile_pattern, load_statement_rules
from engrain.core.text.tokenizer import lower_each

SPEAKER_KEY = "speaker"  # metadata key: the speaker of a fact, if it was not the user

_FIELD = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"[\w'#+./-]*[\w#+]")
_NAME = re.compile(r"\w+")
USER_NAME_SLOT = "user.name"
_USER_PREFIX, _RESERVED_PREFIXES = "user.", ("user.", "we.", "agent.")
# Nothing but another value of the slot changes these: "our cat is called Miso" ends no name of the user.
_IDENTITY = frozenset({"name", "birthday", "origin", "pronouns"})
_ADDRESSES = frozenset({"email", "phone"})
_MAX_NAME_WORDS = 3
_MAX_FILLING_CHARACTERS = 60


def fill_slot(rule: Rule, match: re.Match[str], text: str) -> str | None:
    """Fill the words of the text into the rule's slot; None if they name no class of things."""
    if rule.slot is None:
        return None
    field = _FIELD.search(rule.slot)
    if field is None:
        return rule.slot
    said = _matched_text(match, field[1], text)
    if said is None or _matched_text(match, "of", text):
        return None  # "my budget for the bike": there may be other budgets
    filling = _make_filling(field[1], said, rule.slot.startswith("user.prefers."))
    return rule.slot.replace(field[0], filling) if filling and len(filling) <= _MAX_FILLING_CHARACTERS else None


def _make_filling(field: str, said: str, prefers: bool) -> str | None:
    known = load_statement_rules()
    if field == "noun":
        return known.nouns.get(lower_each(said))
    if field == "words":
        return "_".join(_WORD.findall(said.lower()))
    if field == "head":
        return _class_of_noun(lower_each(said).split()[-1])
    found = classify_thing(said, by_head=prefers and field == "thing")
    return found if field != "sole" or found in known.words["sole"] else None


def classify_thing(said: str, *, by_head: bool = False) -> str | None:
    """Return the class of the first thing in `said`: by the table, or with `by_head` by the last noun of a phrase."""
    written, next_word = _read_noun_phrase(said)
    if by_head and next_word == "for":
        return None  # "Rust for tools": another language may be for other things
    words = [word.lower() for word in written]
    known = load_statement_rules()
    for size in range(min(_MAX_NAME_WORDS, len(words)), 0, -1):
        phrase = " ".join(words[:size])
        forms = (" ".join(written[:size]), phrase, phrase.title() if by_head else phrase)
        name = next((known.classes[form] for form in forms if form in known.classes), None)
        if name:
            return name
    if not by_head or len(words) < 2 or words[0].endswith("ing"):
        return None
    last = words[-1]
    return None if last != written[-1] or last in known.words["no_head"] else _class_of_noun(last)


def is_identity(slot: str | None) -> bool:
    """Tell if only a statement that fills this slot may end its value."""
    return slot is not None and slot.rpartition(".")[2] in _IDENTITY


def is_address(slot: str | None) -> bool:
    """Tell if a slot holds where somebody is reached: one may give other addresses for other purposes."""
    return slot is not None and slot.rpartition(".")[2] in _ADDRESSES


def find_mentioned_slot(text: str) -> str | None:
    """Return the slot of the first "my …" in a text."""
    known = load_statement_rules()
    found = next(
        (match for pattern in known.asks["mention"] for match in compile_pattern(pattern).finditer(text)), None
    )
    if found is None:
        return None
    if "head" in found.re.groupindex:
        return f"user.favourite.{_class_of_noun(lower_each(found['head']).split()[-1])}"
    return f"user.{known.nouns[lower_each(found['noun'])]}"


def rename_for_speaker(speaker: str | None, slot: str | None) -> str | None:
    """Rename a slot of the user for another speaker: Bob's `user.city` is `bob.city`.

    A speaker whose name clashes with a reserved prefix, such as "user", gets no slot.
    """
    if speaker is None or slot is None or not slot.startswith(_USER_PREFIX):
        return slot
    name = "_".join(_NAME.findall(speaker.lower()))
    return None if not name or f"{name}." in _RESERVED_PREFIXES else f"{name}.{slot.removeprefix(_USER_PREFIX)}"


def find_user_names(statement: str) -> tuple[str, ...]:
    """Return the name that a statement of `user.name` gives, and the first name: "I'm Ana Torres", "Ana Torres"."""
    name = _trailing_name(f"- {statement}")
    return (" ".join(name), name[0]) if name else ()


def states_same_name(one: str, other: str) -> bool:
    """Tell if two statements give the user the same name: "I'm Ana", "Me llamo Ana"."""
    name = _trailing_name(one)
    return bool(name) and name == _trailing_name(other) and _names_the_user(one) and _names_the_user(other)


def _trailing_name(text: str) -> list[str]:
    """Return the capitalised words at the end, without the first word of the text."""
    words = text.rstrip(".! ").split()[1:]
    lower_case = [number for number, word in enumerate(words, 1) if not word[0].isupper()]
    return words[max(lower_case, default=0) :]


def _names_the_user(text: str) -> bool:
    return any(rule.pattern.match(text) for rule in _name_rules())


@cache
def _name_rules() -> frozenset[Rule]:
    rules = (rule for group in load_statement_rules().by_word.values() for rule in group)
    return frozenset(rule for rule in rules if rule.slot == USER_NAME_SLOT and rule.kind != "denial")


def _matched_text(match: re.Match[str], name: str, text: str) -> str | None:
    # From the text itself: the pattern may have matched hidden letters.
    if name not in match.re.groupindex or match[name] is None:
        return None
    return text[match.start(name) : match.end(name)]


def _read_noun_phrase(said: str) -> tuple[list[str], str]:
    """Return the words of the first thing that is named, and the word after them."""
    known = load_statement_rules().words
    words: list[str] = []
    for piece in said.split():
        word = _WORD.match(piece.strip("\"'“”‘’«»`*()"))
        only_adjectives = bool(words) and known["telling"].issuperset(earlier.lower() for earlier in words)
        if only_adjectives and word and word[0].lower() == "and":
            continue
        if word is None or word[0].lower() in known["ends"]:
            return words, word[0].lower() if word else ""
        if words or word[0].lower() not in known["skipped"]:
            words.append(word[0])
        if piece[-1] in ";:" or (piece[-1] == "," and (not words or words[-1].lower() not in known["telling"])):
            break
    return words, ""


def _class_of_noun(word: str) -> str:
    return load_statement_rules().heads.get(word) or _make_singular(word)


def _make_singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
