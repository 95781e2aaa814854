"""A memory reads a message with the model that judges sentences, whatever stands between it and its embedder."""

from __future__ import annotations

from pathlib import Path

import pytest

from engrain import Store
from engrain.ingest import read_messages
from engrain.ingest.gate import find_statements
from engrain.ingest.whose_words import MIN_SURE, OwnChances, split_parts
from engrain.providers.local import LocalEmbedder

IN_OWN_WORDS = "back to one salary since Maja's firm folded"


def test_a_store_judges_sentences_with_its_local_embedder(tmp_path: Path) -> None:
    assert find_statements(IN_OWN_WORDS) == [], "the rules alone keep it"
    with Store(tmp_path / "own-words.db", embedder=LocalEmbedder()) as store:
        result = store.memory(user="ana").add_message("user", IN_OWN_WORDS)
        (fact,) = (store.memory(user="ana").get(id) for id in result.facts)
    assert fact is not None
    assert fact.text == IN_OWN_WORDS


@pytest.mark.parametrize("text", ["We've moved to Quito", "Quito is home now, no more Lima for us"])
def test_only_a_message_that_is_surely_the_speakers_changes_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """By a rule, or by the finder of changes."""
    found: list[str] = []
    with Store(tmp_path / "slots.db", embedder=LocalEmbedder()) as store:
        for chance in (MIN_SURE, MIN_SURE - 0.01):
            memory = store.memory(user=f"ana {chance}")
            memory.remember("I live in Lima", slot="user.city")

            def judge(_states: object, shown: str, chance: float = chance) -> OwnChances:
                parts = split_parts(shown)
                return OwnChances(parts, [chance] * len(parts), len(shown))

            monkeypatch.setattr(read_messages, "judge_speakers", judge)
            assert memory.add_message("user", text).facts
            found += [item.text for item in memory.slots.list("user.city")]
    assert found == [text, "I live in Lima"]
