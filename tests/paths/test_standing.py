"""A filter holds for standing preferences too, before only the newest of them are looked at."""

from __future__ import annotations

from collections.abc import Callable

from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.retrieval.search import MAX_STANDING_ORDERS


def test_newer_preferences_that_do_not_match_crowd_out_none_that_does(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=HashEmbedder())
    wanted = memory.remember("Always use metric units.", metadata={"about": "cooking"})
    memory.remember_many([f"Always dust shelf {n} first." for n in range(MAX_STANDING_ORDERS)])
    found = memory.recall("Can you recommend a recipe?", where={"metadata.about": "cooking"}, min_relevance=0.0)
    assert [(hit.item.id, "standing" in hit.found_by) for hit in found.hits] == [(wanted, True)]
