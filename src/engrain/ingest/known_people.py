"""Tell if a sentence is about somebody whom the user has introduced: "Emil has asthma" after "my son Emil"."""

from __future__ import annotations

import re
from collections.abc import Sequence

from engrain.core.model.filters import Condition, Filter
from engrain.core.model.queries import WordQuery
from engrain.core.rules.statements import load_statement_rules
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Sentence
from engrain.core.text.tokenizer import extract_terms
from engrain.ingest.change_finder import ChangeFinder
from engrain.ingest.sentence_model import tag_word

_FACTS = Filter((Condition("kind", "=", "fact"),))
_MAX_FACTS = 5  # read for a name
_MIN_NAME = 2
_FIRST = re.compile(r"[^\W\d_]+(?=['’]s\b|\s)")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_PEOPLE = frozenset(("kin", "person", "pet"))
_LINKS = frozenset(("be", "called", "my", "they"))
_JOINING = frozenset(("and", "und", "y", "e", "et", "s", "se", "who", "die", "der"))


def find_known_names(text: str, sentences: Sequence[Sentence], finder: ChangeFinder) -> dict[Sentence, str]:
    """Return the sentences that begin with the name of somebody known, each with that name."""
    known: dict[Sentence, str] = {}
    reported = load_statement_rules().sign("reported")
    for one in sentences:
        first = _FIRST.match(text, one.start, one.end)
        if not first or reported.search(text, one.start, one.end):
            continue
        if _may_be_name(first[0]) and _is_told(first[0], text[: one.start], finder):
            known[one] = first[0]
    return known


def _may_be_name(word: str) -> bool:
    lower = word.lower()
    return (
        len(word) >= _MIN_NAME
        and not tag_word(lower)
        and not load_languages().all_stop_terms.issuperset(extract_terms(lower))
    )


def _is_told(name: str, before: str, finder: ChangeFinder) -> bool:
    """Look for the name behind or before a word for a person, in the message so far and in the facts."""
    if introduces(before, name):
        return True
    services, scope = finder.services, finder.scope
    hits = services.words.best(WordQuery(tuple(extract_terms(name)), scope, _FACTS, limit=_MAX_FACTS)).hits
    items = services.items.get_many(scope, [hit.id for hit in hits]) if hits else ()
    return any(introduces(item.text, name) for item in items)


def introduces(text: str, name: str) -> bool:
    """Tell if a text says who has a name: "our cats, Miso and Pip", "Sarah is my sister"."""
    words = _WORD.findall(text)
    places = [place for place, word in enumerate(words) if word.lower() == name.lower()]
    return any(_reaches_person(words[:place][::-1]) or _reaches_person(words[place + 1 :]) for place in places)


def _reaches_person(words: Sequence[str]) -> bool:
    """Tell if a word for a person follows, with nothing but names and links before it."""
    for word in words:
        tag = tag_word(word.lower())
        if tag in _PEOPLE:
            return True
        if tag not in _LINKS and word.lower() not in _JOINING and (tag or not word[0].isupper()):
            return False
    return False
