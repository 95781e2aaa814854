"""Summaries of the sessions in summary_sessions.jsonl: what each must tell, and what it must not tell as the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory

SESSIONS = [
    json.loads(line) for line in Path(__file__).with_name("summary_sessions.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("session", SESSIONS, ids=[one["name"] for one in SESSIONS])
def test_a_summary_tells_who_decided_what_and_nothing_that_was_pasted(session: dict[str, Any], tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.start_session("one")
        for message in session["messages"]:
            memory.add_message(message["role"], message["text"])
        text = str(memory.end_session())
    for wanted in session["tells"]:
        assert wanted in text
    for unwanted in session["omits"]:
        assert unwanted not in text
    own = [line for line in text.splitlines() if line.startswith("user: ")]
    for foreign in session["not_by_user"]:
        assert not any(foreign in line for line in own)
