"""A memory reads a message with the model that judges sentences, whatever stands between it and its embedder."""

from __future__ import annotations

from pathlib import Path

from engrain import Store
from engrain.ingest.gate import find_statements
from engrain.providers.local import LocalEmbedder

IN_OWN_WORDS = "back to one salary since Maja's firm folded"


def test_a_store_judges_sentences_with_its_local_embedder(tmp_path: Path) -> None:
    assert find_statements(IN_OWN_WORDS) == [], "the rules alone keep it"
    with Store(tmp_path / "own-words.db", embedder=LocalEmbedder()) as store:
        result = store.memory(user="ana").add_message("user", IN_OWN_WORDS)
        (fact,) = (store.memory(user="ana").get(id) for id in result.facts)
    assert fact is not None
    assert fact.text == IN_OWN_WORDS
