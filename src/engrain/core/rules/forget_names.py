"""Read how statements name the things of a request, and which of them only mention somebody beside other matters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from engrain.core.rules.forget_matters import MAX_CHARACTERS, Topic, find_kinds, state_kind
from engrain.core.rules.forget_requests import fold_accents, list_matter_words
from engrain.core.text.tokenizer import tokenize

_WORD = r"[^\W\d_]+"
_CALLED = (
    r"(?:'s|is|was)? ?(?:called|named|name is)|'s name is|heißt|hieß|namens|mit namen|hört auf|se llama|llamad[oa]|"
    r"s'appelle|nommée?|qui s'appelle"
)
_NAMED = re.compile(rf"\b(?=({_WORD})(?:,? ((?i:{_CALLED}))|((?i:{_CALLED}))|,)? ({_WORD}))")
_NAME_FIRST = re.compile(
    rf"\b([^\W\d_a-zà-öø-ÿ]{_WORD})(?:,| is| ist| es| est)? "
    rf"(?:my|our|mein\w*|unser\w*|mi|nuestr[oa]|mon|ma|notre) ({_WORD})"
)
_BESIDE = re.compile(
    r"\b(?:with|and|near|beside|mit|und|bei|con|y|junto a|avec|et|chez)\s+(?:(?:my|our|mein\w*|unser\w*|mi|mon|ma)\s+"
    rf"(?:{_WORD}\s+)?)?$",
    re.IGNORECASE,
)
_OWN_KINDS = frozenset(("address", "job", "school"))


def add_names(topic: Topic, texts: Sequence[str]) -> Topic:
    """Return the topic with the name of its thing, if the texts give just one: "our dog is called Balu"."""
    if len(topic.words) != 1:
        return topic
    found = {name for text in texts if not topic.is_of_other(text) for name in _find_names(topic.words[0], text)}
    return replace(topic, called=next(iter(found))) if len(found) == 1 else topic


def only_mentions_name(topic: Topic, text: str) -> bool:
    """Tell if a text about the speaker has a name only beside other matters: "I live in Leeds with Callum"."""
    names = set(topic.find_names([text]))
    if not names or names != set(topic.words):
        return False
    text = text[:MAX_CHARACTERS]
    places = [match.start() for match in re.finditer(_WORD, text) if not names.isdisjoint(tokenize(match[0]))]
    if not places or not all(_BESIDE.search(text[max(0, at - 60) : at]) for at in places):
        return False
    kinds = find_kinds(text[: places[0]]) & _OWN_KINDS
    rest = (one for one in list_matter_words(text) if names.isdisjoint(tokenize(one)))
    return bool(kinds) and any(not any(state_kind(name, one)[0] for name in kinds) for one in rest)


def _find_names(word: str, text: str) -> set[str]:
    text = text[:MAX_CHARACTERS]
    found = {
        match[4]
        for match in _NAMED.finditer(text)
        if _is(match[1], word) and (match[4][0].isupper() or match[2] or match[3])
    }
    found |= {match[1] for match in _NAME_FIRST.finditer(text) if _is(match[2], word)}
    return {one for one in map(fold_accents, found) if one != word}


def _is(noun: str, word: str) -> bool:
    return word in tokenize(noun)
