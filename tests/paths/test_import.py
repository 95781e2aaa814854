"""What mem0, ChatGPT and Claude export comes in with its sessions, roles and times, once."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import Open

from engrain import BadFile, EngrainError, InvalidInput, Memory
from engrain.conformance.embedder import HashEmbedder

MEM0: Any = {
    "results": [
        {"id": "m1", "memory": "Ana likes tea.", "created_at": "2024-07-01T10:00:00-07:00", "user_id": "x",
         "metadata": {"k": 1}, "categories": ["food"], "hash": "abc"},
        {"id": "m2", "memory": "Ana lives in Lima.", "created_at": None},
    ],
    "relations": [{"source": "ana", "relationship": "knows", "target": "ben"}],
}  # fmt: skip


def node(id: str, parent: str | None, role: str, text: object, at: float = 1_700_000_000.0, **more: Any) -> Any:
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    message = {"id": f"msg-{id}", "author": {"role": role}, "create_time": at, "content": content, "metadata": {}}
    return {"id": id, "parent": parent, "children": [], "message": {**message, **more}}


CHATGPT: Any = [
    {
        "conversation_id": "c1",
        "title": "Tea",
        "current_node": "d",
        "mapping": {
            "root": {"id": "root", "parent": None, "children": ["s"], "message": None},
            "s": node("s", "root", "system", ""),
            "a": node("a", "s", "user", "What is tea?"),
            "b": node("b", "a", "assistant", "The branch that was left."),
            "c": node("c", "a", "assistant", {"content_type": "multimodal_text", "parts": [{"image": 1}, "A drink."]}),
            "t": node("t", "c", "assistant", {"content_type": "thoughts", "thoughts": ["hm"]}),
            "d": node("d", "t", "user", "Thanks.", 1_700_000_100.5),
        },
    }
]
CLAUDE: Any = [
    {
        "uuid": "u1",
        "name": "Coffee",
        "chat_messages": [
            {"uuid": "1", "sender": "human", "text": "Hello.", "created_at": "2025-01-01T00:00:00.5Z", "content": []},
            {
                "uuid": "2",
                "sender": "assistant",
                "text": "",
                "created_at": "2025-01-01T00:00:01Z",
                "content": [{"type": "text", "text": "Hi."}, {"type": "tool_use", "name": "x"}],
            },
            {"uuid": "3", "sender": "human", "text": " ", "created_at": None},
        ],
    }
]
ALL = {"mem0": MEM0, "chatgpt": CHATGPT, "claude": CLAUDE}


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    return open_memory(background=False, embedder=HashEmbedder())


def loaded(memory: Memory, value: object, **terms: Any) -> Any:
    return memory.load(io.BytesIO(json.dumps(value).encode()), **terms)


def test_mem0_becomes_facts_and_relations(memory: Memory) -> None:
    assert loaded(memory, MEM0).form == "mem0"
    tea = memory.list({"text": "Ana likes tea."})[0]
    assert (tea.kind, str(tea.occurred_at), tea.trust) == ("fact", "2024-07-01 17:00:00+00:00", 0.6)
    assert tea.metadata == {"metadata": {"k": 1}, "categories": ["food"]}
    assert memory.about("Ben")[0].text == "ana knows ben"


def test_chatgpt_becomes_sessions_of_the_branch_that_is_shown(memory: Memory) -> None:
    assert loaded(memory, CHATGPT).form == "chatgpt"
    said = memory.messages(9, session="chatgpt-c1")
    assert [(one.role, one.text) for one in said] == [
        ("user", "What is tea?"), ("assistant", "A drink."), ("user", "Thanks."),
    ]  # fmt: skip
    assert said[0].metadata == {"title": "Tea"}
    assert str(said[2].occurred_at) == "2023-11-14 22:15:00.500000+00:00"
    assert memory.list({"kind": "fact"}) == []


def test_claude_becomes_sessions(memory: Memory) -> None:
    assert loaded(memory, CLAUDE).form == "claude"
    said = memory.messages(9, session="claude-u1")
    assert [(one.role, one.text) for one in said] == [("user", "Hello."), ("assistant", "Hi.")]
    assert str(said[0].occurred_at) == "2025-01-01 00:00:00.500000+00:00"


@pytest.mark.parametrize("form", ALL)
def test_a_second_import_adds_nothing(memory: Memory, form: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(ALL[form], indent=1))
    first = memory.load(path)
    before = [one.id for one in memory.list(limit=99)]
    again = memory.load(path, form=form)  # type: ignore[arg-type]
    assert (first.added, again.added, again.repeated) == (3 if form != "claude" else 2, 0, first.added)
    assert [one.id for one in memory.list(limit=99)] == before


@pytest.mark.parametrize("form", ALL)
def test_what_was_forgotten_is_not_imported_again(memory: Memory, form: str) -> None:
    loaded(memory, ALL[form])
    memory.forget({"source": form})
    assert loaded(memory, ALL[form]).added == 0
    assert memory.list() == []


def test_a_bad_entry_is_named_and_nothing_comes_in(memory: Memory) -> None:
    with pytest.raises(BadFile) as caught:
        loaded(memory, [*CLAUDE, {"uuid": 7, "chat_messages": []}, {"uuid": "x", "chat_messages": 3}])
    assert [one.line for one in caught.value.lines] == [2, 3]
    assert memory.list() == []
    assert loaded(memory, [*CLAUDE, {"uuid": 7}], skip_bad=True).added == 2


def test_a_circle_of_messages_is_refused(memory: Memory) -> None:
    circle = json.loads(json.dumps(CHATGPT))
    circle[0]["mapping"]["a"]["parent"] = "d"
    with pytest.raises(BadFile, match="hang together"):
        loaded(memory, circle)


@pytest.mark.parametrize("value", [[], [[1]], {"a": 1}, [7], {"results": {}}, 7, None])
def test_what_is_none_of_them_is_refused(memory: Memory, value: object) -> None:
    with pytest.raises((BadFile, InvalidInput)):
        loaded(memory, value)
    assert memory.list() == []


ODD: list[Any] = [None, True, 7, -1, 1e308, "", "x", "\ud800", "\x00", [], [None], {}, {"a": 1}, "9999-99-99", 2**70]


def _fuzzed(value: Any, rng: random.Random) -> Any:
    if rng.random() < 0.06:
        return rng.choice(ODD)
    if isinstance(value, dict):
        return {key: _fuzzed(one, rng) for key, one in value.items() if rng.random() > 0.02}
    return [_fuzzed(one, rng) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ALL)
def test_changed_files_never_crash_and_never_half_load(memory: Memory, form: Any) -> None:
    rng = random.Random(form)
    taken = 0
    for _ in range(150):
        before = len(memory.list(limit=9_999))
        try:
            taken += loaded(memory, _fuzzed(ALL[form], rng), form=form).written
        except EngrainError:
            assert len(memory.list(limit=9_999)) == before
    assert 0 < taken < 150
