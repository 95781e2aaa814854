"""The contracts of the ports as tests, which a backend's own test file runs in a few lines."""

from __future__ import annotations

from engrain.conformance.adding import AddingSuite
from engrain.conformance.changing import ChangingSuite
from engrain.conformance.filtering import FilteringSuite
from engrain.conformance.following import FollowingSuite
from engrain.conformance.forgetting import ForgettingSuite
from engrain.conformance.isolation import IsolationSuite
from engrain.conformance.reading import ReadingSuite
from engrain.conformance.slots import SlotSuite
from engrain.conformance.vectors import VectorIndexSuite
from engrain.conformance.words import WordIndexSuite

__all__ = ["ItemStoreSuite", "VectorIndexSuite", "WordIndexSuite"]


class ItemStoreSuite(
    AddingSuite,
    ChangingSuite,
    SlotSuite,
    ForgettingSuite,
    ReadingSuite,
    FollowingSuite,
    FilteringSuite,
    IsolationSuite,
):
    """All that the ItemStore port promises."""
