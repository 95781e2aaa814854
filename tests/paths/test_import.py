"""What mem0, ChatGPT and Claude export comes in with its sessions, roles and times, once."""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from examples import SERVED, for_each
from memory_kit import Open

from engrain import BadFile, Conflict, EngrainError, InvalidInput, Memory, TooLarge

MEM0: Any = {
    "results": [
        {"id": "m1", "memory": "Ana likes tea.", "created_at": "2024-07-01T10:00:00-07:00", "user_id": "ana",
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
for at, message in enumerate(CLAUDE[0]["chat_messages"]):
    message |= {"parent_message_uuid": str(at), "attachments": [{"file_name": "a.txt", "extracted_content": ""}]}
ALL = {"mem0": MEM0, "chatgpt": CHATGPT, "claude": CLAUDE}


@pytest.fixture(params=["sqlite", SERVED])
def memory(request: pytest.FixtureRequest, open_memory: Open) -> Memory:
    if request.param == "served":
        return request.getfixturevalue("served_memory")
    return open_memory(background=False, embedder=HashEmbedder())


def loaded(memory: Memory, value: object, **terms: Any) -> Any:
    return memory.load(io.BytesIO(json.dumps(value).encode()), **terms)


def test_mem0_becomes_facts_and_relations(memory: Memory) -> None:
    assert loaded(memory, MEM0).format == "mem0"
    tea = memory.list({"text": "Ana likes tea."})[0]
    assert (tea.kind, str(tea.occurred_at), tea.trust) == ("fact", "2024-07-01 17:00:00+00:00", 0.6)
    assert tea.metadata == {"k": 1, "categories": ["food"], "user_id": "ana"}
    assert memory.relations.about("Ben")[0].text == "ana knows ben"


def test_chatgpt_becomes_sessions_of_the_branch_that_is_shown(memory: Memory) -> None:
    assert loaded(memory, CHATGPT).format == "chatgpt"
    said = memory.sessions.messages("chatgpt-c1", 9)
    assert [(one.role, one.text) for one in said] == [
        ("user", "What is tea?"), ("assistant", "A drink."), ("user", "Thanks."),
    ]  # fmt: skip
    assert said[0].metadata == {"title": "Tea"}
    assert str(said[2].occurred_at) == "2023-11-14 22:15:00.500000+00:00"
    assert memory.list({"kind": "fact"}) == []
    assert memory.sessions.list(1)[0].last_at == said[2].occurred_at, "when it was said, not when it was loaded"


def test_claude_becomes_sessions(memory: Memory) -> None:
    assert loaded(memory, CLAUDE).format == "claude"
    said = memory.sessions.messages("claude-u1", 9)
    assert [(one.role, one.text) for one in said] == [("user", "Hello."), ("assistant", "Hi.")]
    assert str(said[0].occurred_at) == "2025-01-01 00:00:00.500000+00:00"


def said_in(memory: Memory, session: str) -> list[tuple[str, str]]:
    return [(one.role, one.text) for one in memory.sessions.messages(session, 99)]


def test_chatgpt_words_are_found_in_whatever_part_they_stand(memory: Memory) -> None:
    voice = {"content_type": "multimodal_text", "parts": [
        {"content_type": "audio_transcription", "text": "Spoken."},
        {"content_type": "real_time_user_audio_video_asset_pointer", "audio_asset_pointer": {"asset_pointer": "x"}},
        None, {"content_type": "image_asset_pointer", "asset_pointer": "x"}, {"text": "Beside a picture."},
    ]}  # fmt: skip
    page = {"content_type": "tether_browsing_display", "result": "What the page says.", "summary": None}
    marked = (
        "Tea\ue200cite\ue202turn0search1\ue202turn0search4\ue201 comes from "
        '\ue200entity\ue202["country","China","in Asia"]\ue201.'
    )
    mapping = {
        "a": node("a", None, "user", voice),
        "b": node("b", "a", "tool", page),
        "c": node("c", "b", "assistant", marked),
    }
    loaded(memory, [{"conversation_id": None, "id": "c7", "current_node": "c", "mapping": mapping}])
    assert said_in(memory, "chatgpt-c7") == [
        ("user", "Spoken.\nBeside a picture."), ("tool", "What the page says."), ("assistant", "Tea comes from China."),
    ]  # fmt: skip


def test_chatgpt_message_without_an_id_has_that_of_its_node_and_a_time_may_be_a_text(memory: Memory) -> None:
    mapping = {"a": node("a", None, "user", "Hello.", create_time="2025-01-01T00:00:00Z")}
    del mapping["a"]["message"]["id"]
    conversation = {"conversation_id": "c8", "current_node": "a", "mapping": mapping}
    assert loaded(memory, conversation).added == 1, "one conversation by itself"
    assert str(memory.sessions.messages("chatgpt-c8", 9)[0].occurred_at) == "2025-01-01 00:00:00+00:00"
    assert loaded(memory, [conversation]).repeated == 1


@for_each("at", [True, [], {}, 1e30])
def test_an_import_refuses_a_time_that_is_none(memory: Memory, at: object) -> None:
    with pytest.raises(EngrainError, match="a time must be"):
        loaded(memory, {"results": [{"id": "m1", "memory": "Ana likes tea.", "created_at": at}]})
    assert memory.list() == []


def test_what_a_user_told_chatgpt_of_themselves_once_for_all_is_known_once(memory: Memory) -> None:
    told = {"about_user_message": "Ana builds boats.", "about_model_message": "Be short."}
    more = {"metadata": {"is_visually_hidden_from_conversation": True, "user_context_message_data": told}}
    content = {"content_type": "user_editable_context", "user_profile": "…Ana builds boats.…"}
    mapping = {"s": node("s", None, "user", content, create_time=None, **more), "a": node("a", "s", "user", "Hello.")}
    talks = [
        {"conversation_id": id, "create_time": 1_700_000_000.0 + at, "current_node": "a", "mapping": mapping}
        for at, id in enumerate(("c1", "c2"))
    ]
    loaded(memory, talks)
    known = [(item.slot, item.text) for item in memory.slots.list("chatgpt.")]
    assert known == [("chatgpt.about_model", "Be short."), ("chatgpt.about_user", "Ana builds boats.")]
    assert [item.text for item in memory.list({"kind": "fact"}, history=True)].count("Be short.") == 1


def claude_message(id: str, parent: str, sender: str, text: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": "hm"}, *([{"type": "text", "text": text}] if text else [])]
    at = f"2026-01-01T00:00:0{id[0]}Z"
    values = {"uuid": id, "sender": sender, "text": "", "content": content, "created_at": at}
    return {**values, "parent_message_uuid": parent, "attachments": [], "files": [], **more}


FIRST = "00000000-0000-4000-8000-000000000000"
BRANCHED = [
    claude_message("1", FIRST, "human", "How old is tea?"),
    claude_message("2", "1", "assistant", "A thousand years."),
    claude_message("3", "1", "assistant", "Five thousand years."),
    claude_message("4", "3", "human", "Thanks."),
]


def test_claude_shows_the_branch_that_the_conversation_ends_with(memory: Memory) -> None:
    shown = [("user", "How old is tea?"), ("assistant", "Five thousand years."), ("user", "Thanks.")]
    loaded(memory, [{"uuid": "u1", "chat_messages": BRANCHED}])
    assert said_in(memory, "claude-u1") == shown
    loaded(memory, {"uuid": "u2", "chat_messages": BRANCHED, "current_leaf_message_uuid": "2"})
    assert said_in(memory, "claude-u2") == [shown[0], ("assistant", "A thousand years.")]


def test_claude_messages_that_do_not_hang_together_all_come_in(memory: Memory) -> None:
    loaded(memory, [{"uuid": "u1", "chat_messages": [*BRANCHED[:2], claude_message("5", "gone", "human", "So?")]}])
    assert [text for _, text in said_in(memory, "claude-u1")] == ["How old is tea?", "A thousand years.", "So?"]


def test_what_was_pasted_into_claude_comes_in_and_no_facts_are_drawn_from_it(memory: Memory) -> None:
    pasted = [{"file_name": "", "extracted_content": "I live in Atlantis."}, {"file_name": "x.pdf"}]
    messages = [
        claude_message("1", FIRST, "human", "", attachments=pasted),
        claude_message("2", "1", "human", "I live in Lima.", attachments=[{"file_name": "a.txt",
            "extracted_content": "x" * 1_500_000}]),
    ]  # fmt: skip
    loaded(memory, [{"uuid": "u1", "name": "Boats", "chat_messages": messages}], facts=True)
    said = memory.sessions.messages("claude-u1", 99)
    assert said[0].text == "I live in Atlantis."
    assert said[0].metadata == {"title": "Boats", "attachment": "pasted"}
    assert sum(len(one.text) for one in said) == len("I live in Atlantis.") + len("I live in Lima.") + 1_500_000
    assert [item.text for item in memory.list({"kind": "fact"})] == ["I live in Lima"]


def test_claude_memories_of_a_file_for_each_account_come_in(memory: Memory, tmp_path: Path) -> None:
    told = {"conversations_memory": "Ana builds boats.", "project_memories": {}, "memory_files": []}
    assert loaded(memory, told).added == 1
    with zipfile.ZipFile(tmp_path / "claude.zip", "w") as archive:
        archive.writestr("projects/p1.json", json.dumps({"uuid": "p1", "docs": []}))
        archive.writestr("memories/acct.json", json.dumps(told))
        archive.writestr("conversations.json", json.dumps(CLAUDE))
    done = memory.load(tmp_path / "claude.zip")
    assert (done.format, done.added, done.repeated) == ("claude", 2, 1)


def test_an_archive_that_begins_with_an_empty_list_is_read_to_its_end(memory: Memory, tmp_path: Path) -> None:
    for values, told in (([[], CHATGPT], 3), ([[], []], None)):
        with zipfile.ZipFile(tmp_path / "chatgpt.zip", "w") as archive:
            for number, value in enumerate(values):
                archive.writestr(f"conversations-00{number}.json", json.dumps(value))
        if told is None:
            with pytest.raises(InvalidInput, match="empty"):
                memory.load(tmp_path / "chatgpt.zip")
        else:
            assert memory.load(tmp_path / "chatgpt.zip").added == told


def test_who_saved_a_file_in_utf_16_is_told_so(memory: Memory) -> None:
    for raw in ('{"text": "Tea."}\n'.encode("utf-16"), b"\xfe\xff" + '{"text": "Tea."}'.encode("utf-16-be")):
        with pytest.raises(InvalidInput, match="UTF-16"):
            memory.load(io.BytesIO(raw))


def test_mem0_memories_without_ids_come_in_once(memory: Memory) -> None:
    given = {"memories": [{"memory": "Ana likes tea."}, {"memory": "Ana lives in Lima."}]}
    assert loaded(memory, given).added == 2
    assert loaded(memory, given).repeated == 2


def test_what_claude_wrote_down_itself_is_replaced_by_what_it_wrote_later(memory: Memory) -> None:
    told = {"conversations_memory": "Ana builds boats.", "project_memories": {"p1": "A boat of oak."}}
    assert loaded(memory, [told]).added == 2
    assert loaded(memory, [told]).repeated == 2
    assert loaded(memory, [{**told, "conversations_memory": "Ana builds ships."}]).replaced == 1
    assert {item.slot: item.text for item in memory.slots.list()} == {
        "claude.memory": "Ana builds ships.",
        "claude.memory.p1": "A boat of oak.",
    }


def told_facts(memory: Memory) -> dict[str, str | None]:
    return {item.text: item.slot for item in memory.list() if item.kind == "fact"}


@pytest.mark.parametrize("before", [False, True])
def test_facts_are_drawn_from_what_the_user_said_if_asked(memory: Memory, before: bool) -> None:
    chats = json.loads(json.dumps(CHATGPT))
    nodes = chats[0]["mapping"]
    nodes["a"]["message"]["content"]["parts"] = ["I live in Lima. What is tea?"]
    nodes["c"]["message"]["content"]["parts"] = ["I live in Rome. I prefer long answers."]
    nodes["d"]["message"]["content"]["parts"] = ["Forget that. I prefer short answers."]
    if before:
        loaded(memory, chats)
        assert told_facts(memory) == {}
    foretold = loaded(memory, chats, facts=True, dry_run=True)
    found = loaded(memory, chats, facts=True)
    assert replace(foretold, written=True) == found
    assert (found.facts, found.added) == (2, 0 if before else 3)
    assert set(told_facts(memory)) == {"I live in Lima", "I prefer short answers"}
    (lima,) = (item for item in memory.list() if item.text == "I live in Lima")
    said = memory.sessions.messages("chatgpt-c1", 9)[0]
    assert (lima.trust, lima.occurred_at, lima.sources[0].name) == (0.6, said.occurred_at, "chatgpt")
    assert lima.sources[0].cites[0].item == said.id
    assert loaded(memory, chats, facts=True).facts == 0
    memory.forget(said.id)
    assert "I live in Lima" not in told_facts(memory)
    assert loaded(memory, chats, facts=True).facts == 0


def test_an_older_value_from_a_chat_does_not_replace_what_is_known(memory: Memory) -> None:
    memory.add_message("user", "I live in Quito.", session="now")
    chats = json.loads(json.dumps(CHATGPT))
    chats[0]["mapping"]["a"]["message"]["content"]["parts"] = ["I live in Lima."]
    loaded(memory, chats, facts=True)
    assert told_facts(memory) == {"I live in Quito": "user.city"}
    assert "I live in Lima" in [item.text for item in memory.list(history=True)]


def test_what_was_spoken_is_kept_in_words(memory: Memory) -> None:
    spoken = {"content_type": "audio_transcription", "text": "I speak.", "direction": "in"}
    content = {"content_type": "multimodal_text", "parts": [{"content_type": "audio_asset_pointer"}, spoken]}
    talk = {"conversation_id": "c2", "current_node": "a", "mapping": {"a": node("a", None, "user", content)}}
    loaded(memory, [talk])
    assert [one.text for one in memory.sessions.messages("chatgpt-c2", 9)] == ["I speak."]


def test_what_programs_and_cut_pictures_leave_in_a_chat_does_not_refuse_it(memory: Memory) -> None:
    raw = json.dumps(CHATGPT).replace("What is tea?", "What \\u0000is \\ud83d?")
    memory.load(io.BytesIO(raw.encode()))
    assert memory.sessions.messages("chatgpt-c1", 9)[0].text == "What is ??"


def archive(**files: object) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, value in files.items():
            packed.writestr(name.replace("__", "/"), json.dumps(value))
    return out.getvalue()


def test_an_archive_comes_in_as_it_was_downloaded(memory: Memory) -> None:
    second = [{**CHATGPT[0], "conversation_id": "c2"}]
    files = {"chat.html": "x", "user.json": {"id": 1}, "shared_conversations.json": [{"id": "no"}]}
    shards = {"export__conversations-000.json": CHATGPT, "export__conversations-001.json": second}
    assert memory.load(io.BytesIO(archive(**files, **shards))).added == 6
    assert {one.session for one in memory.sessions.list(9)} == {"chatgpt-c1", "chatgpt-c2"}
    told = [{"conversations_memory": "Ana builds boats.", "project_memories": {}}]
    claude = archive(**{"conversations.json": CLAUDE, "memories.json": told, "users.json": [], "projects.json": []})
    found = memory.load(io.BytesIO(claude))
    assert (found.format, found.added) == ("claude", 3)
    assert memory.load(io.BytesIO(claude)).repeated == 3


def test_a_bad_archive_is_refused_and_nothing_comes_in(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = archive(**{"conversations.json": CHATGPT})
    bad = {**CHATGPT[0], "mapping": 7}
    shards = archive(**{"conversations-000.json": CHATGPT, "conversations-001.json": [bad]})
    with pytest.raises(BadFile, match=r"conversations-001\.json: mapping"):
        memory.load(io.BytesIO(shards))
    damaged = bytearray(whole)
    damaged[60] ^= 255
    for raw in (whole[:50], whole[:-9], bytes(damaged), archive(**{"notes.json": []}), archive(**{"a__b.txt": 1})):
        with pytest.raises(InvalidInput):
            memory.load(io.BytesIO(raw))
    monkeypatch.setattr("engrain.transfer.readers.MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(TooLarge):
        memory.load(io.BytesIO(whole))
    assert memory.list() == []


def test_an_archive_takes_no_more_room_than_it_says(memory: Memory) -> None:
    raw = bytearray(archive(**{"conversations.json": " " * 32_000_000}))
    for place in (22, raw.rfind(b"PK\x01\x02") + 24):
        struct.pack_into("<L", raw, place, 1_000)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput):
            memory.load(io.BytesIO(raw))
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packing", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_is_packed_as_nobody_packs_these_is_refused(memory: Memory, packing: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing) as packed:
        packed.writestr("conversations.json", json.dumps(CHATGPT))
    with pytest.raises(InvalidInput, match="Unpack it first"):
        memory.load(io.BytesIO(out.getvalue()))
    assert memory.list() == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_was_changed_since_takes_the_place_of_what_came_in_before(memory: Memory, dry_run: bool) -> None:
    loaded(memory, MEM0)
    loaded(memory, CHATGPT)
    facts, chats = json.loads(json.dumps(MEM0)), json.loads(json.dumps(CHATGPT))
    facts["results"][0] |= {"memory": "Ana likes coffee.", "updated_at": "2025-07-01T10:00:00-07:00"}
    chats[0]["title"] = "Another title"
    chats[0]["mapping"]["d"]["message"]["content"]["parts"] = ["Thanks a lot."]
    assert loaded(memory, facts, dry_run=dry_run).replaced == 1
    found = loaded(memory, chats, dry_run=dry_run)
    assert (found.added, found.repeated, found.replaced) == (0, 2, 1)
    tea, thanks = ("Ana likes tea.", "Thanks.") if dry_run else ("Ana likes coffee.", "Thanks a lot.")
    assert tea in [item.text for item in memory.list()]
    assert [one.text for one in memory.sessions.messages("chatgpt-c1", 9)][1:] == ["A drink.", thanks]
    assert len(memory.list()) == 6


def test_a_correction_that_was_made_here_outlives_the_next_import(memory: Memory) -> None:
    loaded(memory, MEM0)
    (old,) = (item for item in memory.list() if item.text == "Ana likes tea.")
    memory.correct(old.id, "Ana likes ale.")
    changed = json.loads(json.dumps(MEM0))
    changed["results"][0]["memory"] = "Ana likes coffee."
    for value in (MEM0, changed):
        assert loaded(memory, value).repeated == 3
    assert "Ana likes ale." in [item.text for item in memory.list()]


def test_what_was_changed_to_something_forgotten_here_stays_out(memory: Memory) -> None:
    loaded(memory, MEM0)
    memory.forget(memory.remember("Ana likes coffee."))
    changed = json.loads(json.dumps(MEM0))
    changed["results"][0]["memory"] = "Ana likes coffee."
    found = loaded(memory, changed)
    assert (found.kept_out, found.repeated) == (1, 2)
    assert "Ana likes tea." in [item.text for item in memory.list()]


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_was_changed_to_something_private_that_was_forgotten_stays_out(open_memory: Open, dry_run: bool) -> None:
    memory = open_memory(background=False, embedder=HashEmbedder(), settings={"privacy": {"redact": ["mails"]}})
    told = "Write to ana.perez@example.com about the flat."
    memory.forget(memory.remember(told))
    memory.load(io.BytesIO(json.dumps([{"id": "m1", "memory": "Ana has a flat."}]).encode()))
    found = memory.load(io.BytesIO(json.dumps([{"id": "m1", "memory": told}]).encode()), dry_run=dry_run)
    assert (found.format, found.replaced, found.kept_out) == ("mem0", 0, 1)
    assert [one.text for one in memory.list()] == ["Ana has a flat."]


def test_memories_of_several_users_are_taken_only_if_said(memory: Memory) -> None:
    mixed = json.loads(json.dumps(MEM0))
    mixed["results"][1]["user_id"] = "ben"
    with pytest.raises(Conflict, match="ana, ben"):
        loaded(memory, mixed)
    assert memory.list() == []
    assert loaded(memory, mixed, other_scope=True).added == 3


def test_memories_of_another_user_are_taken_only_if_said(open_memory: Open, memory: Memory) -> None:
    ben = open_memory(store=":memory:", user="ben", background=False, embedder=HashEmbedder())
    for how in ({}, {"dry_run": True}, {"skip_bad": True}):
        with pytest.raises(Conflict, match=r"of ana, and this memory is that of user=ben.*--other-scope"):
            loaded(ben, MEM0, **how)
    assert ben.list() == []
    assert loaded(ben, MEM0, other_scope=True).added == 3
    assert loaded(memory, MEM0).added == 3


def test_a_memory_without_a_user_takes_those_of_one_user(open_memory: Open) -> None:
    shared = open_memory(user=None, agent="team", background=False, embedder=HashEmbedder())
    assert loaded(shared, MEM0).added == 3


@pytest.mark.parametrize("form", ALL)
def test_a_second_import_adds_nothing(memory: Memory, form: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(ALL[form], indent=1))
    first = memory.load(path)
    before = [one.id for one in memory.list(limit=99)]
    again = memory.load(path, format=form)  # type: ignore[arg-type]
    assert (first.added, again.added, again.repeated) == (3 if form != "claude" else 2, 0, first.added)
    assert [one.id for one in memory.list(limit=99)] == before


@pytest.mark.parametrize("begun", ['{"results": [\n', '{\n"results": [\n', '{"version": "v1.1",\n"results": [\n'])
def test_a_document_is_known_wherever_its_first_line_ends(memory: Memory, tmp_path: Path, begun: str) -> None:
    path = tmp_path / "mem0.json"
    path.write_text(begun + ",\n".join(json.dumps(one) for one in MEM0["results"]) + "\n]}\n")
    assert (memory.load(path).format, len(memory.list())) == ("mem0", 2)


def test_notes_whose_first_line_has_a_comma_too_many_stay_notes(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text": "Ana likes tea."},\n{"text": "Ana lives in Lima."}\n')
    assert memory.load(path, skip_bad=True).added == 1


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
    with pytest.raises(BadFile, match="are not connected"):
        loaded(memory, circle)


@for_each("value", [[], [[1]], {"a": 1}, [7], {"results": {}}, 7, None])
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
            taken += loaded(memory, _fuzzed(ALL[form], rng), format=form).written
        except EngrainError:
            assert len(memory.list(limit=9_999)) == before
    assert 0 < taken < 150
