"""What happens in a session is one durable write, whatever follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from faults import Faults

from engrain.core.chat.parse import parse_messages
from engrain.core.identity import Scope
from engrain.core.model.messages import Message, ToolCall
from engrain.core.tokens import estimate_tokens
from engrain.ingest.write_messages import record_messages
from engrain.ports import Services
from engrain.stores.sqlite import SqliteStore

ANA = Scope(user="ana")
CALL = Message("assistant", "Looking.", calls=(ToolCall("c1", "search", {"to": "UIO"}),))


@pytest.mark.parametrize(
    "said",
    [
        [Message("user", "Hello.")],
        [Message("user", "I live in Lima, my name is Teo, and remember that my dog is called Rex.")],
        [Message("user", "I live in Quito now."), CALL, Message("tool", "Two flights. " * 1_000, answers="c1")],
        [Message("assistant", "We use Postgres.", event="decision")],
    ],
    ids=["a turn", "facts", "a call with a long result", "a decision"],
)
def test_a_turn_with_all_that_follows_syncs_once(tmp_path: Path, said: list[Message]) -> None:
    mine: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "sync":
            mine.append(path)

    with Faults(note):
        store = SqliteStore(tmp_path / "store.db", clock=SetClock())
        kit = Services(
            store, store, store, store, HashEmbedder(), SetClock(), estimate_tokens,
            episodes=store.episodes, same_store=True,
        )  # fmt: skip
        record_messages(parse_messages([Message("user", "I live in Lima.")]), "monday", ANA, kit)
        store._checkpointer.stop()
        mine.clear()
        record_messages(parse_messages(said), "monday", ANA, kit)
        assert len(mine) == 1
        store.close()
