"""The contracts of the ports as tests, which a backend's own test file runs in a few lines."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engrain_conformance.at_hand import SessionStateSuite
    from engrain_conformance.embedders import EmbedderSuite
    from engrain_conformance.episodes import EpisodesSuite
    from engrain_conformance.erasing import ErasingSuite
    from engrain_conformance.holds import HoldSuite
    from engrain_conformance.items import ItemStoreSuite
    from engrain_conformance.late import LateSuite
    from engrain_conformance.moving import MovingSuite
    from engrain_conformance.outcomes import OutcomesSuite
    from engrain_conformance.sessions import SessionLogSuite
    from engrain_conformance.tasks import MemoryStepSuite, TaskJournalSuite
    from engrain_conformance.together import TogetherSuite
    from engrain_conformance.vectors import VectorIndexSuite
    from engrain_conformance.words import WordIndexSuite

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
        raise AttributeError(f"module 'engrain_conformance' has no attribute {name!r}")
    value: object = getattr(import_module(f"engrain_conformance.{_HOME[name]}"), name)
    globals()[name] = value
    return value
