"""Tell which facts of a person an assistant must know for a request: standing wishes, and facts that bear on it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from engrain.core.model.items import LATER_KEY, RESERVED_KEY, TRUST, WISH_KEY, Item
from engrain.core.rules.asked_manner import asks_for_manner
from engrain.core.rules.slot_names import SPEAKER_KEY
from engrain.core.rules.statements import INSTRUCTION, detect_traits

_MAX_READ_CHARACTERS = 2_000
_USER_SLOT = "user."
# Where other systems keep what they know of their user.
_IMPORTED_SLOTS = ("letta.human", "chatgpt.about_user", "claude.memory")
_IMPORTED_OWNER = "user_id"  # in the metadata of a memory of mem0
_MIN_IMPORTANCE = 0.75
HEALTH_TOPICS = frozenset(("food", "body"))
UNSURE_IMPORTANCE = 0.5  # of a statement that is only probably meant


@dataclass(frozen=True, slots=True)
class _Topic:
    asks: re.Pattern[str]
    facts: re.Pattern[str]
    slots: frozenset[str]


def is_standing_wish(item: Item) -> bool:
    """Tell if a fact is the user's own word on how the assistant should always answer or act."""
    if item.kind != "fact" or item.trust < TRUST["user"] or SPEAKER_KEY in item.metadata:
        return False
    return says_wish(item.text, item.metadata)


def says_wish(text: str, metadata: Mapping[str, Any]) -> bool:
    """Tell if a fact says how the assistant should always answer or act, by its mark or its words."""
    own = metadata.get(RESERVED_KEY)
    return (isinstance(own, Mapping) and own.get(WISH_KEY) is True) or _states_wish(_fold(text))


def _states_wish(text: str) -> bool:
    """Tell if a folded text says how an assistant should always answer or act."""
    wishes = _load_wishes()
    plain = wishes["since"].sub(" ", text)
    if detect_traits(plain) & INSTRUCTION or wishes["sure"].search(plain):
        return True
    if wishes["objects"].search(plain) and (plain != text or wishes["verbs"].search(plain)):
        return True
    return asks_for_manner(text) or (plain != text and wishes["statements"].search(plain) is None)


def is_earlier(item: Item) -> bool:
    """Tell if something newer was said about the matter of a fact: a profile does not show it as current."""
    own = item.metadata.get(RESERVED_KEY)
    return isinstance(own, Mapping) and LATER_KEY in own


def is_about_user(item: Item, names: Collection[str] = ()) -> bool:
    """Tell if a fact is part of who the user is: said by them, in a slot of theirs, pinned or important.

    An imported fact is if it names the user: `names` has the user's id and name.
    """
    if item.kind != "fact" or item.pinned:
        return item.kind == "fact"
    if SPEAKER_KEY in item.metadata:
        return False
    if item.trust < TRUST["agent"]:
        return _names_user(item, names)
    said = item.importance >= UNSURE_IMPORTANCE and any(
        cite for source in item.sources if source.kind == "user" for cite in source.cites
    )
    slotted = item.slot is not None and item.slot.startswith(_USER_SLOT)
    return said or slotted or item.importance >= _MIN_IMPORTANCE


def _names_user(item: Item, names: Collection[str]) -> bool:
    """Tell if an imported fact has the user as its subject. One that says what an assistant should do never counts."""
    imported = [source for source in item.sources if source.kind == "import"]
    text = _fold(item.text)
    if not imported or len(item.text) > _MAX_READ_CHARACTERS or _states_wish(text) or _load_orders().search(text):
        return False
    if item.slot is not None and (item.slot.startswith(_USER_SLOT) or item.slot in _IMPORTED_SLOTS):
        return True
    if item.metadata.get(_IMPORTED_OWNER) in names or any(source.cites for source in imported):
        return True
    known = (re.escape(_fold(name.strip())) for name in names if name.strip())
    subject = "|".join((*_load_subjects(), *known))
    return re.match(rf"\W{{0,8}}(?:{subject})(?!\w)", _fold(item.text)) is not None


def find_topics(request: str) -> frozenset[str]:
    """Return the subjects of a request on which facts about a person bear, such as food for a dinner."""
    text = _fold(request)
    return frozenset(name for name, topic in _load_topics().items() if topic.asks.search(text))


def bears_on(item: Item, topics: frozenset[str]) -> bool:
    """Tell if a fact bears on one of the subjects: an allergy on food, the city on a trip."""
    text, leaf = _fold(item.text), (item.slot or "").rpartition(".")[2]
    chosen = (_load_topics()[name] for name in topics)
    return any(leaf in topic.slots or topic.facts.search(text) is not None for topic in chosen)


def bears_on_health(item: Item, topics: frozenset[str]) -> bool:
    """Tell if a fact that bears on the subjects matters for somebody's health: it is told first."""
    return bears_on(item, topics & HEALTH_TOPICS)


def _fold(text: str) -> str:
    return text[:_MAX_READ_CHARACTERS].lower().replace("\u2019", "'")


@cache
def _load_subjects() -> tuple[str, ...]:
    return tuple(_read("subjects")["user"])


@cache
def _load_orders() -> re.Pattern[str]:
    return _join(_read("subjects")["orders"])


@cache
def _load_wishes() -> Mapping[str, re.Pattern[str]]:
    return {name: _join(patterns) for name, patterns in _read("wishes").items()}


@cache
def _load_topics() -> Mapping[str, _Topic]:
    return {
        name: _Topic(_join(table["asks"]), _join(table["facts"]), frozenset(table["slots"].split()))
        for name, table in _read("topics").items()
    }


def _join(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{one})" for one in patterns))


def _read(name: str) -> dict[str, Any]:
    path = resources.files("engrain.core") / "data" / "profile" / f"{name}.toml"
    return tomllib.loads(path.read_text("utf-8"))
