"""The table of tiers: its numbers are the promises of the design."""

from __future__ import annotations

import dataclasses

import pytest

from engrain.core.model.retention import TIERS, WindowLimits


def test_every_kind_of_memory_is_in_the_table_under_its_name() -> None:
    assert list(TIERS) == ["working", "conversation", "episodic", "semantic", "procedural", "files"]
    assert all(tier.name == name and tier.holds and tier.lives and tier.found_by for name, tier in TIERS.items())


def test_the_limits_are_those_of_the_design() -> None:
    assert TIERS["working"].window == WindowLimits(20, 8_000, 0.80, 20, 5)
    assert TIERS["conversation"].window == WindowLimits(50, 10_000, 0.80, 30, 10)
    assert (TIERS["episodic"].max_items, TIERS["episodic"].ttl_seconds) == (1_000, 86_400)
    for unlimited in ("semantic", "procedural"):
        assert TIERS[unlimited].max_items is TIERS[unlimited].ttl_seconds is TIERS[unlimited].window is None


def test_nobody_changes_the_table() -> None:
    with pytest.raises(TypeError):
        TIERS["working"] = TIERS["semantic"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        TIERS["working"].max_items = 1  # type: ignore[misc]
