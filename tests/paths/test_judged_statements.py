"""A memory reads a message with the model that judges sentences, whatever stands between it and its embedder."""

from __future__ import annotations

from pathlib import Path

from engrain import Store
from engrain.providers.local import LocalEmbedder

IN_OWN_WORDS = "my sister Vera works at Bosch in Linz"


def test_a_store_judges_sentences_with_its_local_embedder(tmp_path: Path) -> None:
    with Store(tmp_path / "own-words.db", embedder=LocalEmbedder()) as store:
        result = store.memory(user="ana").add_message("user", IN_OWN_WORDS)
        (fact,) = (store.memory(user="ana").get(id) for id in result.facts)
    assert fact is not None
    assert fact.text == IN_OWN_WORDS
