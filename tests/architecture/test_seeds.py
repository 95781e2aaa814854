"""Every counterpart that docs/explanation/seeds.md names is really there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

from examples import for_each

import engrain
from engrain import Memory
from engrain.tasks.manage_tasks import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import Relations, SemanticMemory, Slots

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "seeds.md"
TIERS = {
    "working": ScopedWorkingMemory,
    "conversation": ConversationMemory,
    "episodic": EpisodicMemory,
    "semantic": SemanticMemory,
    "procedural": ProceduralMemory,
    "relations": Relations,
    "slots": Slots,
    "tasks": Tasks,
}
ROWS = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ") and "there |" not in line]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`([\w.]+)`", row[2])})


@for_each("name", NAMES)
def test_a_counterpart_is_there(name: str) -> None:
    first, *rest = name.split(".")
    if first == "memory":
        owner = TIERS[rest.pop(0)] if rest[0] in TIERS and len(rest) > 1 else Memory
        assert hasattr(owner, rest[0]), name
    elif first == "Store":
        assert hasattr(engrain.Store, rest[0]), name
    elif rest:
        assert hasattr(import_module(f"engrain.{'.'.join([first, *rest[:-1]])}"), rest[-1]), name
    else:
        assert first in {tier.__name__ for tier in TIERS.values()} or hasattr(engrain, first), name


def test_every_row_names_a_counterpart() -> None:
    assert len(ROWS) > 45
    assert all(re.search(r"`[\w.]+`", row[2]) for row in ROWS)
