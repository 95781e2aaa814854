"""The contracts of the ports as tests, which a backend's test file runs in a few lines."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engrain_conformance.dump_restore import DumpRestoreSuite
    from engrain_conformance.embedders import EmbedderSuite
    from engrain_conformance.episodes import EpisodesSuite
    from engrain_conformance.erasure import ErasureSuite
    from engrain_conformance.holds import HoldSuite
    from engrain_conformance.items import ItemStoreSuite
    from engrain_conformance.late_writes import LateWriteSuite
    from engrain_conformance.outcomes import OutcomesSuite
    from engrain_conformance.records import RecordsSuite
    from engrain_conformance.rerankers import RerankerSuite
    from engrain_conformance.session_state import SessionStateSuite
    from engrain_conformance.sessions import SessionLogSuite
    from engrain_conformance.tasks import MemoryStepSuite, TaskJournalSuite
    from engrain_conformance.transactions import TransactionSuite
    from engrain_conformance.vectors import VectorIndexSuite
    from engrain_conformance.words import WordIndexSuite

# Loaded when first asked for: who wants the embedder or the clock of tests alone needs no pytest.
_HOME = {
    "EmbedderSuite": "embedders",
    "EpisodesSuite": "episodes",
    "ErasureSuite": "erasure",
    "HoldSuite": "holds",
    "ItemStoreSuite": "items",
    "LateWriteSuite": "late_writes",
    "MemoryStepSuite": "tasks",
    "DumpRestoreSuite": "dump_restore",
    "OutcomesSuite": "outcomes",
    "RecordsSuite": "records",
    "RerankerSuite": "rerankers",
    "SessionLogSuite": "sessions",
    "SessionStateSuite": "session_state",
    "TaskJournalSuite": "tasks",
    "TransactionSuite": "transactions",
    "VectorIndexSuite": "vectors",
    "WordIndexSuite": "words",
}

__all__ = [
    "DumpRestoreSuite",
    "EmbedderSuite",
    "EpisodesSuite",
    "ErasureSuite",
    "HoldSuite",
    "ItemStoreSuite",
    "LateWriteSuite",
    "MemoryStepSuite",
    "OutcomesSuite",
    "RecordsSuite",
    "RerankerSuite",
    "SessionLogSuite",
    "SessionStateSuite",
    "TaskJournalSuite",
    "TransactionSuite",
    "VectorIndexSuite",
    "WordIndexSuite",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'engrain_conformance' has no attribute {name!r}")
    value: object = getattr(import_module(f"engrain_conformance.{_HOME[name]}"), name)
    globals()[name] = value
    return value
