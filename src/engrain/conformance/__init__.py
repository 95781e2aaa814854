"""The contracts of the ports as tests, which a backend's own test file runs in a few lines."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engrain.conformance.at_hand import SessionStateSuite
    from engrain.conformance.embedders import EmbedderSuite
    from engrain.conformance.episodes import EpisodesSuite
    from engrain.conformance.erasing import ErasingSuite
    from engrain.conformance.holds import HoldSuite
    from engrain.conformance.items import ItemStoreSuite
    from engrain.conformance.late import LateSuite
    from engrain.conformance.moving import MovingSuite
    from engrain.conformance.outcomes import OutcomesSuite
    from engrain.conformance.sessions import SessionLogSuite
    from engrain.conformance.tasks import MemoryStepSuite, TaskJournalSuite
    from engrain.conformance.together import TogetherSuite
    from engrain.conformance.vectors import VectorIndexSuite
    from engrain.conformance.words import WordIndexSuite

# Loaded when first asked for: who wants the embedder or the clock of tests alone needs no pytest.
_HOME = {
    "EmbedderSuite": "embedders",
    "EpisodesSuite": "episodes",
    "ErasingSuite": "erasing",
    "HoldSuite": "holds",
    "ItemStoreSuite": "items",
    "LateSuite": "late",
    "MemoryStepSuite": "tasks",
    "MovingSuite": "moving",
    "OutcomesSuite": "outcomes",
    "SessionLogSuite": "sessions",
    "SessionStateSuite": "at_hand",
    "TaskJournalSuite": "tasks",
    "TogetherSuite": "together",
    "VectorIndexSuite": "vectors",
    "WordIndexSuite": "words",
}

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


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'engrain.conformance' has no attribute {name!r}")
    value: object = getattr(import_module(f"engrain.conformance.{_HOME[name]}"), name)
    globals()[name] = value
    return value
