"""Find the hits that only repeat another hit."""

from __future__ import annotations

import re
from collections.abc import Mapping

from engrain.core.model.recall import (
    Hit,
)
from engrain.core.text.tokenizer import normalize_unicode, tokenize
from engrain.retrieval.selection import Candidate

# A message is a duplicate of a fact that cites at least this share of it.
MIN_CITED_SHARE = 0.6
MAX_OTHER_WORDS = 0.1  # of a hit that a summary holds all the same
# Only words that never change the meaning: "is" and "was", "on" and "off", "my" and "your" do.
_FILLER_WORDS = frozenset(("a", "an", "the", "that", "please", "just", "really", "very"))
# Only marks without meaning at the edge of a word. All others may have one: C++ and C, -5 and 5, a question, 5' and 5".
_OPENING_MARKS = re.compile(r"""^[("'“‘«\[]+""")
_CLOSING_MARKS = re.compile(r"""(?:[.,;:!…”’»)\]]|(?<!\d)["'])+$""")


def find_duplicates(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Return each duplicate with the hit that it repeats.

    A hit is a duplicate if an earlier one has the same words in the same order, whatever the punctuation.
    A trusted one counts as earlier than an untrusted one.
    A message is one if another hit cites most of it. The same value in two slots is two facts. A summary is one if
    it only holds the words of another hit, and a fact without a slot if it is a part of a longer hit.
    """
    found = _find_contained(hits)
    first: dict[tuple[object, ...], Candidate] = {}
    cited = _find_cited_messages({one: hit for one, hit in hits.items() if one not in found})
    for candidate, hit in sorted(hits.items(), key=lambda pair: not pair[0].trusted):
        words = (hit.item.slot, hit.scope, *normalize_words(hit.text))
        other = cited.get(hit.item.id) or first.setdefault(words, candidate)
        if other != candidate and other not in found:
            found[candidate] = other
    return found


def _find_contained(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Return the summaries that hold another hit, and the facts without a slot that cite a part of another hit."""
    found: dict[Candidate, Candidate] = {}
    # Only a summary is compared by its words.
    has_summary = any(hit.item.kind == "summary" for hit in hits.values())
    words = {candidate: set(tokenize(hit.text)) for candidate, hit in hits.items()} if has_summary else {}
    for candidate, hit in hits.items():
        # An untrusted hit never takes the place of a trusted one, nor does a summary that may itself be left out.
        others = (one for one in hits if one.trusted or not candidate.trusted)
        other = None
        if hit.item.kind == "summary":
            held = words[candidate]
            others = (one for one in others if hits[one].item.kind != "summary")
            other = next((one for one in others if len(words[one] - held) <= MAX_OTHER_WORDS * len(words[one])), None)
        elif hit.item.kind == "fact" and hit.item.slot is None:
            cited = {cite.item for source in hit.item.sources for cite in source.cites}
            other = next((one for one in others if one.id in cited and _holds(hits[one], hit)), None)
        if other is not None:
            found[candidate] = other
    return found


def _holds(whole: Hit, part: Hit) -> bool:
    """Tell if a hit shows the words of another, and they are not most of it."""
    return part.text in whole.text and len(part.text) < MIN_CITED_SHARE * len(whole.item.text)


def normalize_words(text: str) -> list[str]:
    """Return the words without filler and edge punctuation. Endings and capitals stay: universe is not university."""
    words = normalize_unicode("NFC", text).split()
    words = [word if word.isalnum() else _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", word)) for word in words]
    words[:1] = [word[:1].lower() + word[1:] for word in words[:1]]
    return [word for word in words if word and word not in _FILLER_WORDS]


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
