"""Pasted texts of nine authors, through the public API: none deletes a fact, and few fill a slot."""

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
# The share of pastes that may fill a slot, and that may leave a fact: by the rules alone, and with the model.
RULES, MODEL = (0.007, 0.04), (0.003, 0.03)


def read_pasted() -> list[dict[str, Any]]:
    read = (
        json.loads(line) for path in sorted(HOSTILE.glob("*.jsonl")) for line in path.read_text("utf-8").splitlines()
    )
    return [row for row in read if not row["id"].startswith(ORDINARY)]


@pytest.mark.parametrize(
    ("embedder", "step", "limits"),
    [
        (HashEmbedder, 9, RULES),
        pytest.param(HashEmbedder, 1, RULES, marks=pytest.mark.slow),
        pytest.param(LocalEmbedder, 1, MODEL, marks=pytest.mark.slow),
    ],
)
def test_a_pasted_text_deletes_nothing_and_seldom_fills_a_slot(
    tmp_path: Path,
    embedder: Callable[[], Any],
    step: int,
    limits: tuple[float, float],
    report_counts: Callable[..., None],
) -> None:
    rows = read_pasted()
    assert len(rows) == 1_715
    with Store(tmp_path / "store.db", embedder=embedder(), background=False) as store:
        result = score(rows[::step], store)
    assert result.with_removals == []
    assert len(result.with_slots) <= limits[0] * len(rows[::step])
    assert len(result.with_facts) <= limits[1] * len(rows[::step])
    if step == 1:
        facts, slots = len(result.with_facts), len(result.with_slots)
        report_counts(texts=len(rows), removals=0, slots=slots, facts=facts)
