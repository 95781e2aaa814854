"""The README's table of backends says what the conformance suites are run on, and nothing else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import engrain_conformance as suites
import pytest

from engrain.core.model.retention import TIERS

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- backends: made by tests/architecture/test_backends.py -->\n", "<!-- end of backends -->"

# The test files that run the suites on a backend, and the name it has in `TIERS`.
BACKENDS = {
    "SQLite": ("sqlite", ("test_sqlite", "test_sqlite_tasks")),
    "Postgres": ("postgresql", ("test_postgres", "test_postgres_tasks")),
    "Redis": ("redis", ("test_redis",)),
    "Qdrant": ("qdrant", ("test_qdrant",)),
    "Chroma": ("chroma", ("test_chroma",)),
}
# What a port is for, and the suite of its contract.
ROWS: dict[str, type] = {
    "semantic: items, slots, relations": suites.ItemStoreSuite,
    "conversation: the log": suites.SessionLogSuite,
    "episodic": suites.EpisodesSuite,
    "procedural: outcomes": suites.OutcomesSuite,
    "durable tasks": suites.TaskJournalSuite,
    "working memory of a session": suites.SessionStateSuite,
    "search by meaning": suites.VectorIndexSuite,
    "search by words": suites.WordIndexSuite,
}
# The tiers whose contract is a row.
TIER_ROWS = {
    "conversation": "conversation: the log",
    "episodic": "episodic",
    "semantic": "semantic: items, slots, relations",
    "procedural": "procedural: outcomes",
}


def run_on(modules: tuple[str, ...]) -> set[type]:
    """The suites that the test classes of these files are made of."""
    sys.path.insert(0, str(ROOT / "tests" / "conformance"))
    try:
        found = [vars(importlib.import_module(name)).values() for name in modules]
    finally:
        sys.path.pop(0)
    classes = [one for values in found for one in values if isinstance(one, type) and one.__name__.startswith("Test")]
    return {suite for suite in ROWS.values() if any(issubclass(one, suite) for one in classes)}


@pytest.fixture(scope="module")
def claimed() -> dict[str, set[type]]:
    return {name: run_on(modules) for name, (_, modules) in BACKENDS.items()}


def table(claimed: dict[str, set[type]]) -> str:
    lines = [f"| | {' | '.join(BACKENDS)} |", "|---" * (len(BACKENDS) + 1) + "|"]
    for row, suite in ROWS.items():
        lines.append(f"| {row} | " + " | ".join("✓" if suite in claimed[name] else "" for name in BACKENDS) + " |")
    return "\n".join(" ".join(line.split()) for line in lines) + "\n"


def test_the_readme_has_the_true_table_of_backends(claimed: dict[str, set[type]]) -> None:
    text = (ROOT / "README.md").read_text()
    shown = text.partition(BEGIN)[2].partition(END)[0]
    assert shown == table(claimed), f"put this between the two marks in README.md:\n{table(claimed)}"


def test_every_store_that_a_tier_names_passes_its_suite(claimed: dict[str, set[type]]) -> None:
    known = {name: backend for backend, (name, _) in BACKENDS.items()}
    for tier, row in TIER_ROWS.items():
        for store in (TIERS[tier].store, *TIERS[tier].at_scale):
            # A vector server beside an item store is named for the search it does.
            wanted = suites.VectorIndexSuite if store in ("qdrant", "chroma") else ROWS[row]
            assert wanted in claimed[known[store]], f"{tier} memory names {store}"
