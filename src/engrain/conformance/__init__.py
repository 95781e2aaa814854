"""The contracts of the ports as tests, which a backend's own test file runs in a few lines."""

from __future__ import annotations

from engrain.conformance.adding import AddingSuite
from engrain.conformance.changing import ChangingSuite
from engrain.conformance.forgetting import ForgettingSuite
from engrain.conformance.slots import SlotSuite


class ItemStoreSuite(AddingSuite, ChangingSuite, SlotSuite, ForgettingSuite):
    """All that the ItemStore port promises."""
