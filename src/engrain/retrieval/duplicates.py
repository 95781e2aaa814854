"""Find hits that repeat another hit, so that each statement appears once."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from engrain.core.model.recall import Hit
from engrain.retrieval.selection import Candidate

# A message is a duplicate of a fact that cites at least this share of it.
MIN_CITED_SHARE = 0.6
# Only words that never change the meaning: "is" and "was", "on" and "off", "my" and "your" do.
_FILLER_WORDS = frozenset(("a", "an", "the", "that", "please", "just", "really", "very"))
# Only marks without meaning at the edge of a word. All others may have one: C++ and C, -5 and 5, a question, 5' and 5".
_OPENING_MARKS = re.compile(r"""^[("'“‘«\[]+""")
_CLOSING_MARKS = re.compile(r"""(?:[.,;:!…”’»)\]]|(?<!\d)["'])+$""")


def find_duplicates(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Return each duplicate with the hit that it repeats.

    A hit is a duplicate if an earlier one has the same words in the same order, whatever the punctuation.
    A message is one if another hit cites most of it. The same value in two slots is two facts.
    """
    found: dict[Candidate, Candidate] = {}
    first: dict[tuple[object, ...], Candidate] = {}
    cited = _find_cited_messages(hits)
    for candidate, hit in hits.items():
        words = (hit.item.slot, hit.scope, *normalize_words(hit.text))
        other = cited.get(hit.item.id) or first.setdefault(words, candidate)
        if other != candidate and other not in found:
            found[candidate] = other
    return found


def normalize_words(text: str) -> Iterator[str]:
    """Yield the words without filler and edge punctuation. Endings and capitals stay: universe is not university."""
    for position, word in enumerate(unicodedata.normalize("NFC", text).split()):
        bare = _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", word))
        bare = bare if position else bare[:1].lower() + bare[1:]
        if bare and bare not in _FILLER_WORDS:
            yield bare


def _find_cited_messages(hits: Mapping[Candidate, Hit]) -> dict[str, Candidate]:
    """Return the messages among the hits that another hit cites for the most part."""
    messages = {hit.item.id: len(hit.item.text) for hit in hits.values() if hit.item.kind == "message"}
    return {
        cite.item: candidate
        for candidate, hit in hits.items()
        for source in hit.item.sources
        for cite in source.cites
        if hit.item.kind != "summary"
        and cite.item in messages
        and (cite.start is None or cite.end is None or cite.end - cite.start >= MIN_CITED_SHARE * messages[cite.item])
    }
