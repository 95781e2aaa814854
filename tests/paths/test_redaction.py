"""With `redact`, nothing private is embedded or stored, whichever way it comes in."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Scripted, says
from engrain_conformance.embedder import HashEmbedder
from memory_kit import Open

from engrain import AgentWithMemory, ConfigError, EmptyText, Memory, Message
from engrain.core.secrets.redact import PRIVATE_KINDS

CARD, MAIL, KEY = "4111 1111 1111 1111", "ana@example.org", "sk-ant-api03-abcdefghijklmnop1234"
PASSWORD = "hunter2"
WORD, PIN = "kumquatbaum", "83920471"
SECRETS = (CARD, MAIL, KEY, PASSWORD, WORD, PIN, CARD.replace(" ", ""))


class Listening(HashEmbedder):
    """Remembers what it was given to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def embed(self, texts: Any, kind: Any) -> Any:
        self.heard += texts
        return super().embed(texts, kind)


def exported(path: Path) -> bytes:
    """By a memory that redacts nothing."""
    with Memory(":memory:", user="ana", background=False, embedder=HashEmbedder()) as memory:
        memory.remember(f"Write to {MAIL}", metadata={MAIL: CARD})
        memory.add_message("user", f"Pay with {CARD}", session="old")
        memory.episodic.record_tool_call("pay", {MAIL: CARD}, KEY)
        memory.episodic.record_error(f"broke with {KEY}")
        memory.procedural.learn("mail", [f"write to {MAIL}"])
        memory.export(path)
    found = path.read_bytes()
    path.unlink()
    return found


def foreign() -> list[bytes]:
    """As mem0, ChatGPT and Claude export."""
    at = "2024-01-01T00:00:00Z"
    said = {"author": {"role": "user"}, "create_time": 1.7e9, "content": {"content_type": "text", "parts": [KEY]}}
    node = {"id": "a", "message": {"id": "a", **said}, "parent": None, "children": []}
    asked = {
        "uuid": "m",
        "text": CARD,
        "sender": "human",
        "created_at": at,
        "content": [{"type": "text", "text": CARD}],
    }
    files: list[Any] = [
        {"results": [{"id": "1", "memory": MAIL, "metadata": {"k": MAIL}, "created_at": at}]},
        [{"title": MAIL, "create_time": 1.7e9, "mapping": {"a": node}, "current_node": "a", "id": "c"}],
        [{"uuid": "u", "name": MAIL, "created_at": at, "updated_at": at, "chat_messages": [asked]}],
    ]
    return [json.dumps(one).encode() for one in files]


def everything(memory: Memory, folder: Path, elsewhere: Sequence[bytes] = ()) -> None:
    text = f"I prefer to pay with {CARD} and to get mail at {MAIL}. My city is Lima."
    memory.remember(text, metadata={"a": [{"b": MAIL}], MAIL: 1, "card": 4111111111111111})
    memory.remember(MAIL, slot="user.mail")
    memory.remember_many([f"Known: {KEY}", {"text": f"Also {CARD}"}])
    memory.correct(memory.remember("Wrong."), f"Right is {MAIL}")
    memory.relations.add("Ana", "has the mail", MAIL)
    memory.start_session("monday")
    memory.add_message("user", text, metadata={"from": MAIL})
    memory.add_message("user", f"Remember that my mail is {MAIL}.")
    memory.add_messages([Message("assistant", f"I see {KEY}."), Message("user", f"No, {CARD}.")])
    memory.episodic.record_tool_call("pay", {"card": CARD, "deep": [MAIL]}, f"{'x ' * 3_000}{CARD} {MAIL}")
    memory.episodic.record_tool_call("fail", {}, f"cannot reach {MAIL}", failed=True)
    memory.episodic.record_tool_call(
        "log_in", {"password": PASSWORD, "deep": [{"db_password": PASSWORD}], MAIL: 1}, "ok"
    )
    memory.episodic.record_resolution(memory.episodic.record_error(f"broke with {KEY}"), f"took {MAIL} instead")
    memory.episodic.record_decision(f"write to {MAIL}")
    memory.episodic.record_error(f"long {'y ' * 3_000} {CARD}", session="s")
    memory.procedural.learn("pay", [f"use {CARD}"], when=f"asked by {MAIL}")
    memory.working.start("pay", procedure="pay")
    memory.working.step(f"thought {MAIL}", "act", f"result {CARD}")
    memory.working.finish(True, f"done with {CARD}")
    memory.semantic.learn(f"learnt {MAIL}")
    with memory.task("order", goal="ship") as run:
        run.remember_step("note", f"noted {MAIL}")
        run.outcome = f"shipped to {MAIL}"
    with suppress(KeyError), memory.task("half"):
        memory.working.add_thought(f"pondered {CARD}")
        raise KeyError
    (folder / "MEMORY.md").write_text(f"# Memory\n\n- write to {MAIL}\n")
    memory.mirror(folder).sync()
    memory.load(io.BytesIO(json.dumps({"text": f"loaded {MAIL}", "metadata": {MAIL: CARD}}).encode()))
    for file in elsewhere:
        memory.load(io.BytesIO(file))
    memory.remember(f"The wifi password is {WORD}.", metadata={"pin": int(PIN), "db_password": WORD})
    memory.add_message("user", f"I ran curl -u ana:{WORD} https://x.example, and my PIN is {PIN}.", session="s")
    memory.episodic.record_tool_call("shell", {"command": f"mysql -uroot -p{WORD}"}, f'{{"password": "{WORD}"}}')
    memory.episodic.record_error(f"PIN {PIN} refused")
    memory.procedural.learn("log in", [f"docker login --password {WORD}"])
    memory.recall(f"What opens with PIN {PIN}?")
    memory.recall(f"Who has the mail {MAIL}?")
    memory.prompt(f"Pay with {CARD}")
    memory.conversation.search(f"Who wrote {MAIL}?")
    memory.end_session()


def test_nothing_private_is_embedded_or_on_disk(open_memory: Open, tmp_path: Path) -> None:
    ear = Listening()
    memory = open_memory(settings={"privacy": {"redact": list(PRIVATE_KINDS)}}, background=False, embedder=ear)
    (tmp_path / "files").mkdir()
    everything(memory, tmp_path / "files", [exported(tmp_path / "export.jsonl"), *foreign()])
    assert memory.store.status(memory.scope).items
    assert any("«mail»" in text for text in ear.heard)
    assert [text for text in ear.heard for secret in SECRETS if secret in text] == []
    memory.close()
    for file in tmp_path.rglob("*"):
        raw = file.read_bytes() if file.is_file() else b""
        assert [secret for secret in SECRETS if secret.encode() in raw] == [], file.name


def test_of_what_an_agent_hears_says_and_is_told_nothing_private_is_kept(open_memory: Open, tmp_path: Path) -> None:
    def look_up(mail: str) -> dict[str, Any]:
        """Say who has a mail address."""
        return {mail: {"card": 4111111111111111, "password": PASSWORD}}

    ear = Listening()
    memory = open_memory(settings={"privacy": {"redact": list(PRIVATE_KINDS)}}, background=False, embedder=ear)
    model = Scripted(says("", ("look_up", {"mail": MAIL})), says(f"The key is {KEY}."))
    answer = AgentWithMemory(memory, model, [look_up]).run(f"Who has {MAIL}? I pay with {CARD}.")
    assert [one.failed for one in answer.calls] == [False]
    assert [text for text in ear.heard for secret in SECRETS if secret in text] == []
    memory.end_session()
    memory.close()
    raw = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert "«mail»".encode() in raw
    assert [secret for secret in SECRETS if secret.encode() in raw] == []


def test_without_it_everything_is_kept_word_for_word(open_memory: Open) -> None:
    memory = open_memory(background=False, embedder=HashEmbedder())
    memory.remember(f"pay with {CARD}")
    assert memory.list()[0].text == f"pay with {CARD}"


def test_what_is_made_of_a_message_cites_the_words_that_are_kept(open_memory: Open) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["mails"]}}, background=False, embedder=HashEmbedder())
    memory.add_message("user", f"My mail is {MAIL}, as ever. My city is Lima.")
    fact = memory.slots.get("user.city")
    assert fact is not None
    (cite,) = fact.sources[0].cites
    row = memory.get(cite.item)
    assert row is not None
    assert row.text[cite.start : cite.end] in fact.text or fact.text in row.text[cite.start : cite.end]
    memory.forget(fact.id)
    assert memory.conversation.last(1)[0].text.startswith("My mail is «mail»")
    assert "Lima" not in memory.conversation.last(1)[0].text


def test_a_call_of_a_tool_can_still_be_read_as_one(open_memory: Open) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["cards"]}}, background=False, embedder=HashEmbedder())
    memory.episodic.record_tool_call("pay", {"card": CARD}, "ok")
    asked, answer = memory.conversation.last(2)
    assert asked.calls[0].arguments == {"card": "«card»"}
    assert answer.answers == asked.calls[0].id


def test_a_repeated_request_is_still_known(open_memory: Open) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["mails"]}}, background=False, embedder=HashEmbedder())
    first = memory.remember(f"write to {MAIL}", request_id="r")
    assert memory.remember(f"write to {MAIL}", request_id="r") == first
    said = memory.add_message("user", f"write to {MAIL}", session="s", request_id="q").id
    assert memory.add_message("user", f"write to {MAIL}", session="s", request_id="q").id == said


def test_it_is_a_setting(open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_REDACT", "mails, cards")
    memory = open_memory(background=False, embedder=HashEmbedder())
    memory.remember(f"{MAIL} {CARD} {KEY}")
    assert memory.list()[0].text == f"«mail» «card» {KEY}"
    monkeypatch.delenv("ENGRAIN_REDACT")
    settings = tmp_path / "engrain.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path}/t.db"\n[privacy]\nredact = ["keys"]\n')
    other = open_memory(store=str(settings), background=False, embedder=HashEmbedder())
    other.remember(f"{MAIL} {KEY}")
    assert other.list()[0].text == f"{MAIL} «key»"
    settings.write_text("[privacy]\nredact = 7\n")
    with pytest.raises(ConfigError, match="redact"):
        open_memory(store=str(settings))


def test_a_function_of_one_s_own(open_memory: Open) -> None:
    memory = open_memory(
        settings={"privacy": {"redact": lambda text: text.replace("Ana", "«name»")}},
        background=False,
        embedder=HashEmbedder(),
    )
    memory.remember("Ana likes tea.")
    assert memory.list()[0].text == "«name» likes tea."
    empty = open_memory(
        user="ben", settings={"privacy": {"redact": lambda _: ""}}, background=False, embedder=HashEmbedder()
    )
    with pytest.raises(EmptyText):
        empty.remember("x")


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_sync_reports_a_line_as_it_was_taken_in(open_memory: Open, tmp_path: Path, dry_run: bool) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["keys", "mails"]}}, background=False, embedder=HashEmbedder())
    (tmp_path / "files" / "memory").mkdir(parents=True)
    (tmp_path / "files" / "MEMORY.md").write_text(f"# Memory\n\n- my mail is {MAIL} and my key {KEY}\n")
    (tmp_path / "files" / "SOUL.md").write_text(f"I am the agent of {MAIL}.\n")
    done = memory.mirror(tmp_path / "files").sync(dry_run=dry_run)
    assert [one.text for one in done.taken] == ["my mail is «mail» and my key «key»", "I am the agent of «mail»."]
    assert not any(secret in repr(done) + str(done) for secret in SECRETS)


def test_a_sync_reports_a_conflict_without_what_is_private(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(settings={"privacy": {"redact": ["keys", "mails"]}}, background=False, embedder=HashEmbedder())
    mirror = memory.mirror(tmp_path)
    id = memory.remember("Ana likes tea.")
    mirror.sync()
    memory.correct(id, "Ana likes coffee.")
    page = tmp_path / "MEMORY.md"
    page.write_text(page.read_text().replace("Ana likes tea.", f"Ana likes tea with {MAIL}."))
    done = mirror.sync()
    assert [one.text for one in done.conflicts] == ["Ana likes tea with «mail»."]
    assert MAIL in (tmp_path / "memory" / "conflicts.md").read_text()
