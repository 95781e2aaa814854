"""Pasted texts of six authors, through the public API: none deletes a fact, and nearly none fills a slot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from hostile.score import ORDINARY, score

from engrain import Store
from engrain.providers.local import LocalEmbedder

HOSTILE = Path(__file__).parent.parent.parent / "bench" / "hostile"
# It gives the words of others as its speaker's own, without a mark that the rules know.
UNDETECTED = {"frame-094"}


def read_pasted() -> list[dict[str, Any]]:
    read = (
        json.loads(line) for path in sorted(HOSTILE.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()
    )
    return [row for row in read if not row["id"].startswith(ORDINARY)]


@pytest.mark.parametrize(
    ("embedder", "step"),
    [
        (HashEmbedder, 9),
        pytest.param(HashEmbedder, 1, marks=pytest.mark.slow),
        pytest.param(LocalEmbedder, 1, marks=pytest.mark.slow),
    ],
)
def test_a_pasted_text_deletes_nothing_and_fills_no_slot(
    tmp_path: Path, embedder: Callable[[], Any], step: int, report_counts: Callable[..., None]
) -> None:
    rows = read_pasted()
    assert len(rows) == 1_235
    with Store(tmp_path / "store.db", embedder=embedder(), background=False) as store:
        result = score(rows[::step], store)
    assert result.with_removals == []
    assert {one.split()[0] for one in result.with_slots} <= UNDETECTED
    assert len(result.with_facts) <= 0.04 * len(rows[::step])
    if step == 1:
        facts, slots = len(result.with_facts), len(result.with_slots)
        report_counts(texts=len(rows), removals=0, slots=slots, facts=facts)
