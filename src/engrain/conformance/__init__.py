"""The contracts of the ports as tests, which a backend's own test file runs in a few lines."""

from __future__ import annotations

from engrain.conformance.adding import AddingSuite
from engrain.conformance.at_hand import SessionStateSuite
from engrain.conformance.changing import ChangingSuite
from engrain.conformance.citing import CitingSuite
from engrain.conformance.embedders import EmbedderSuite
from engrain.conformance.episodes import EpisodesSuite
from engrain.conformance.erasing import ErasingSuite
from engrain.conformance.filtering import FilteringSuite
from engrain.conformance.following import FollowingSuite
from engrain.conformance.forgetting import ForgettingSuite
from engrain.conformance.holds import HoldSuite
from engrain.conformance.isolation import IsolationSuite
from engrain.conformance.late import LateSuite
from engrain.conformance.moving import MovingSuite
from engrain.conformance.outcomes import OutcomesSuite
from engrain.conformance.reading import ReadingSuite
from engrain.conformance.sessions import SessionLogSuite
from engrain.conformance.slots import SlotSuite
from engrain.conformance.tasks import MemoryStepSuite, TaskJournalSuite
from engrain.conformance.together import TogetherSuite
from engrain.conformance.vectors import VectorIndexSuite
from engrain.conformance.words import WordIndexSuite

__all__ = [
    "EmbedderSuite",
    "EpisodesSuite",
    "ErasingSuite",
    "HoldSuite",
    "ItemStoreSuite",
    "LateSuite",
    "MemoryStepSuite",
    "MovingSuite",
    "OutcomesSuite",
    "SessionLogSuite",
    "SessionStateSuite",
    "TaskJournalSuite",
    "TogetherSuite",
    "VectorIndexSuite",
    "WordIndexSuite",
]


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
    """All that the ItemStore port promises, but for what needs a task journal (MemoryStepSuite) or episodes in the same
    store (TogetherSuite)."""
