"""All tests of the ItemStore port, as one suite."""

from __future__ import annotations

from engrain_conformance.adding import AddingSuite
from engrain_conformance.batches import BatchSuite
from engrain_conformance.change_feed import ChangeFeedSuite
from engrain_conformance.changing import ChangingSuite
from engrain_conformance.citing import CitingSuite
from engrain_conformance.filtering import FilteringSuite
from engrain_conformance.forgetting import ForgettingSuite
from engrain_conformance.isolation import IsolationSuite
from engrain_conformance.reading import ReadingSuite
from engrain_conformance.requests import RequestSuite
from engrain_conformance.slots import SlotSuite


class ItemStoreSuite(
    AddingSuite,
    CitingSuite,
    ChangingSuite,
    SlotSuite,
    ForgettingSuite,
    ReadingSuite,
    ChangeFeedSuite,
    FilteringSuite,
    IsolationSuite,
    RequestSuite,
    BatchSuite,
):
    """But for what needs a task journal (MemoryStepSuite) or episodes in the same store (TransactionSuite)."""
