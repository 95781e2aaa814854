"""All that the ItemStore port promises, as one suite."""

from __future__ import annotations

from engrain.conformance.adding import AddingSuite
from engrain.conformance.changing import ChangingSuite
from engrain.conformance.citing import CitingSuite
from engrain.conformance.filtering import FilteringSuite
from engrain.conformance.following import FollowingSuite
from engrain.conformance.forgetting import ForgettingSuite
from engrain.conformance.isolation import IsolationSuite
from engrain.conformance.reading import ReadingSuite
from engrain.conformance.slots import SlotSuite


class ItemStoreSuite(
    AddingSuite,
    CitingSuite,
    ChangingSuite,
    SlotSuite,
    ForgettingSuite,
    ReadingSuite,
    FollowingSuite,
    FilteringSuite,
    IsolationSuite,
):
    """But for what needs a task journal (MemoryStepSuite) or episodes in the same store (TogetherSuite)."""
