"""Standing preferences are found by what they are, and then measured and filtered as all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.retrieval.candidates import MAX_STANDING_ORDERS, MIN_CANDIDATES


def test_newer_preferences_that_do_not_match_crowd_out_none_that_does(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=HashEmbedder())
    wanted = memory.remember("Always use metric units.", metadata={"about": "cooking"})
    memory.remember_many([f"Always dust shelf {n} first." for n in range(MAX_STANDING_ORDERS)])
    found = memory.recall("Can you recommend a recipe?", where={"metadata.about": "cooking"}, min_relevance=0.0)
    assert [(hit.item.id, "standing" in hit.found_by) for hit in found.hits] == [(wanted, True)]


class Alike(HashEmbedder):
    """All texts are near each other, but that of a preference less."""

    def embed(self, texts: Sequence[str], kind: str):  # type: ignore[no-untyped-def, override]
        rows = np.zeros((len(texts), self.model.dimension), dtype=np.float32)
        rows[:, 0] = 1
        rows[["prefer" in text for text in texts], :2] = 0.8, 0.6
        return rows


def test_a_preference_that_no_search_found_counts_by_its_meaning_and_words(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=Alike())
    words = "early at the long table near the window of the old canteen with all colleagues from the second floor"
    wanted = memory.remember(f"I prefer a lunch {words}.")
    memory.remember_many([f"Lunch {number}" for number in range(MIN_CANDIDATES + 5)])
    best = memory.recall("Can you recommend a lunch?", min_relevance=0.0).hits[0]
    assert (best.item.id, best.found_by) == (wanted, ("standing",))
    assert best.score_parts.keys() >= {"meaning", "words", "cover", "preference"}
