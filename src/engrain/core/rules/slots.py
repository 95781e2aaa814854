"""Name the slot that a statement fills: the place for one value, in which a newer one takes over from an older."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.rules.statements import Rule, compile_pattern, load_statement_rules

SPEAKER_KEY = "speaker"  # metadata of a fact that another than the user told

_FIELD = re.compile(r"\{(\w+)\}")
_WORD = re.compile(r"[\w'#+./-]*[\w#+]")
_NAME = re.compile(r"\w+")
_USERS_NAME = "user.name"
_USER, _TAKEN = "user.", ("user.", "we.", "agent.")
_LONGEST_NAME = 3
_LONGEST_FILLING = 60


def fill_slot(rule: Rule, match: re.Match[str], text: str) -> str | None:
    """The rule's slot with the words of the text filled in; None where these name no class of things."""
    if rule.slot is None:
        return None
    field = _FIELD.search(rule.slot)
    if field is None:
        return rule.slot
    said = _group(match, field[1], text)
    if said is None or _group(match, "of", text):
        return None  # "my budget for the bike": there may be others
    filled = _filled(field[1], said, rule.slot.startswith("user.prefers."))
    return rule.slot.replace(field[0], filled) if filled and len(filled) <= _LONGEST_FILLING else None


def _filled(field: str, said: str, prefers: bool) -> str | None:
    known = load_statement_rules()
    if field == "noun":
        return known.nouns.get(said.lower())
    if field == "words":
        return "_".join(_WORD.findall(said.lower()))
    if field == "head":
        return _head(said.lower().split()[-1])
    found = classify_thing(said, by_head=prefers and field == "thing")
    return found if field != "sole" or found in known.words["sole"] else None


def classify_thing(said: str, *, by_head: bool = False) -> str | None:
    """What kind of thing `said` begins with: by the table, or else by the noun that ends two words or more."""
    written, then = _noun_phrase(said)
    if by_head and then == "for":
        return None  # "Rust for tools": another may be for other things
    words = [word.lower() for word in written]
    known = load_statement_rules()
    for size in range(min(_LONGEST_NAME, len(words)), 0, -1):
        phrase = " ".join(words[:size])
        forms = (" ".join(written[:size]), phrase, phrase.title() if by_head else phrase)
        name = next((known.classes[form] for form in forms if form in known.classes), None)
        if name:
            return name
    if not by_head or len(words) < 2 or words[0].endswith("ing"):
        return None
    last = words[-1]
    return None if last != written[-1] or last in known.words["no_head"] else _head(last)


def find_mentioned_slot(text: str) -> str | None:
    """The slot of the first thing that a text speaks of as "my …"."""
    known = load_statement_rules()
    found = next(
        (match for pattern in known.asks["mention"] for match in compile_pattern(pattern).finditer(text)), None
    )
    if found is None:
        return None
    if "head" in found.re.groupindex:
        return f"user.favourite.{_head(found['head'].lower().split()[-1])}"
    return f"user.{known.nouns[found['noun'].lower()]}"


def rename_for_speaker(speaker: str | None, slot: str | None) -> str | None:
    """The slot of what another than the user says: "user.city" is Bob's "bob.city". Where the name cannot be told from
    the user's or the agent's, none."""
    if speaker is None or slot is None or not slot.startswith(_USER):
        return slot
    name = "_".join(_NAME.findall(speaker.lower()))
    return None if not name or f"{name}." in _TAKEN else f"{name}.{slot.removeprefix(_USER)}"


def states_same_name(one: str, other: str) -> bool:
    """Whether two statements give the user the same name: "I'm Ana", "Me llamo Ana"."""
    name = _last_name(one)
    return bool(name) and name == _last_name(other) and _names_the_user(one) and _names_the_user(other)


def _last_name(text: str) -> list[str]:
    """The capitalised words at the end, the first word of all aside."""
    words = text.rstrip(".! ").split()[1:]
    small = [number for number, word in enumerate(words, 1) if not word[0].isupper()]
    return words[max(small, default=0) :]


def _names_the_user(text: str) -> bool:
    return any(compile_pattern(pattern).match(text) for pattern in _naming())


@cache
def _naming() -> frozenset[str]:
    rules = (rule for some in load_statement_rules().by_word.values() for rule in some)
    return frozenset(rule.source for rule in rules if rule.slot == _USERS_NAME and rule.kind != "denial")


def _group(match: re.Match[str], name: str, text: str) -> str | None:
    """The words themselves, also where the pattern saw them hidden."""
    if name not in match.re.groupindex or match[name] is None:
        return None
    return text[match.start(name) : match.end(name)]


def _noun_phrase(said: str) -> tuple[list[str], str]:
    """The words of the thing that is named first, and the word behind them."""
    known = load_statement_rules().words
    words: list[str] = []
    for piece in said.split():
        word = _WORD.match(piece.strip("\"'“”‘’«»`*()"))
        told = bool(words) and known["telling"].issuperset(one.lower() for one in words)
        if told and word and word[0].lower() == "and":
            continue
        if word is None or word[0].lower() in known["ends"]:
            return words, word[0].lower() if word else ""
        if words or word[0].lower() not in known["skipped"]:
            words.append(word[0])
        if piece[-1] in ";:" or (piece[-1] == "," and (not words or words[-1].lower() not in known["telling"])):
            break
    return words, ""


def _head(word: str) -> str:
    return load_statement_rules().heads.get(word) or _singular(word)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
