"""Streams, forms of answers, attachments, approval and parallel tools of an agent, in threads and asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Scripted, model_on, says, told
from engrain_conformance.embedder import HashEmbedder
from pydantic import BaseModel
from wire_server import Says, WireServer, stream_anthropic, stream_openai, streams

from engrain import (
    AgentReply,
    AgentWithMemory,
    ApprovalNeeded,
    AsyncAgentWithMemory,
    AsyncMemory,
    Attachment,
    CallResult,
    InvalidInput,
    Memory,
    ModelFailed,
    NotFound,
    RecordDraft,
    TextDelta,
    TooLarge,
    ToolStarted,
    tool,
)
from engrain.core.model.messages import ChatReply, ChatRequest


class Parcel(BaseModel):
    city: str
    weight: float


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def memory(path: Path) -> Iterator[Memory]:
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as opened:
        yield opened


def look_up(what: str) -> str:
    """Look it up."""
    return f"{what} is in Quito"


class Streaming(Scripted):
    """A model that hands on its text word by word."""

    def reply(self, ask: ChatRequest) -> ChatReply:
        reply = super().reply(ask)
        for word in reply.text.split():
            if ask.on_text is not None:
                ask.on_text(f"{word} ")
        return reply


def run_stream(kind: str, path: Path, model: Any, *tools: Any, **options: Any) -> list[Any]:
    """The events of one turn, by threads or by asyncio."""
    if kind == "threads":
        with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
            return list(AgentWithMemory(memory, model, tools).run("Where is my parcel?", stream=True, **options))

    async def main() -> list[Any]:
        async with AsyncMemory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
            agent = AsyncAgentWithMemory(memory, model, tools)
            return [event async for event in agent.run("Where is my parcel?", stream=True, **options)]

    return asyncio.run(main())


COLOURS = pytest.mark.parametrize("colour", ["threads", "asyncio"])


@COLOURS
def test_a_stream_has_the_pieces_the_calls_and_the_answer_in_order(colour: str, path: Path) -> None:
    model = Streaming(says("Let me see.", ("look_up", {"what": "it"})), "It is in Quito.")
    events = run_stream(colour, path, model, look_up)
    assert [type(event) for event in events] == [
        *[TextDelta] * 3, ToolStarted, CallResult, *[TextDelta] * 4, AgentReply,
    ]  # fmt: skip
    assert "".join(map(str, events[5:9])) == "It is in Quito. "
    assert events[4].result == "it is in Quito"
    assert events[-1].text == "It is in Quito."


@COLOURS
@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_stream_over_the_wire_is_kept_in_the_log_like_any_answer(colour: str, kind: str, path: Path) -> None:
    with WireServer() as server:
        server.script = [Says("Let me see.", [("look_up", {"what": "it"})]), Says("It is in Quito.")]
        events = run_stream(colour, path, model_on(kind, server), look_up)
        assert not server.refused
    assert "".join(str(event) for event in events if isinstance(event, TextDelta)) == "Let me see.It is in Quito."
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        session = memory.sessions.list()[0].session
        assert told(memory.sessions.messages(session))[-1] == ("assistant", "It is in Quito.")


@COLOURS
def test_a_model_that_cannot_stream_gives_its_text_in_one_piece(colour: str, path: Path) -> None:
    events = run_stream(colour, path, Scripted("All at once."))
    assert events[0] == TextDelta("All at once.")
    assert len(events) == 2


@COLOURS
def test_a_failure_is_raised_where_the_stream_is_read(colour: str, path: Path) -> None:
    with pytest.raises(ModelFailed, match="no more"):
        run_stream(colour, path, Scripted(ModelFailed("no more")))


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_stream_that_breaks_off_leaves_the_question_and_no_half_answer(kind: str, memory: Memory) -> None:
    with WireServer() as server:
        whole = (server._anthropic if kind == "anthropic" else server._openai)(Says("It is in Quito."), {"model": "m"})
        events = (stream_anthropic if kind == "anthropic" else stream_openai)(whole)
        server.script = [streams(*events[:5]), Says("It is in Lima.")]
        agent = AgentWithMemory(memory, model_on(kind, server))
        with pytest.raises(ModelFailed, match="broke off"):
            list(agent.run("Where is it?", stream=True))
        asked, failure = memory.conversation.last(9)
        assert (asked.text, failure.event) == ("Where is it?", "error")
        assert agent.run("Where is it?").text == "It is in Lima."
    assert (agent.status()["calls"], agent.status()["failures"]) == (2, 1)


def test_a_closed_stream_stops_the_answer_and_frees_the_agent(memory: Memory) -> None:
    class Slow(Streaming):
        def reply(self, ask: ChatRequest) -> ChatReply:
            assert ask.on_text is not None
            ask.on_text("one ")
            closed.wait(120)
            return super().reply(ask)

    closed = threading.Event()
    events = AgentWithMemory(memory, Slow("one two")).run("Hello.", stream=True)
    assert next(events) == TextDelta("one ")
    threading.Timer(0.2, closed.set).start()
    events.close()  # type: ignore[attr-defined]  # waits for the answer to stop
    agent = AgentWithMemory(memory, Scripted("again"))
    assert [message.role for message in memory.conversation.last(5)] == ["user"]
    assert agent.run("Once more.").text == "again"


def test_a_cancelled_async_stream_stops_the_answer(path: Path) -> None:
    async def main() -> None:
        async with AsyncMemory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
            agent = AsyncAgentWithMemory(memory, Streaming("one two three", "again"))
            events: AsyncIterator[Any] = agent.run("Hello.", stream=True)
            async for _ in events:
                break
            await events.aclose()  # type: ignore[attr-defined]
            assert (await agent.run("Once more.")).text == "again"

    asyncio.run(main())


def test_a_replayed_turn_streams_what_was_recorded(path: Path) -> None:
    first = run_stream("threads", path, Streaming("It is in Quito."), task_id="t")
    again = run_stream("threads", path, Scripted(ModelFailed("not asked")), task_id="t")
    assert [again[0], again[-1].text, again[-1].replayed] == [TextDelta("It is in Quito."), first[-1].text, 1]


# Forms


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_an_answer_in_the_form_of_a_pydantic_model(kind: str, memory: Memory) -> None:
    with WireServer() as server:
        server.script = [Says("", [("final_answer", {"city": "Quito", "weight": 2})])]
        reply = AgentWithMemory(memory, model_on(kind, server)).run("Where is it?", output=Parcel)
        assert not server.refused
        assert server.asked[0].body["tool_choice"]
    assert reply.output == Parcel(city="Quito", weight=2)
    assert reply.stopped == "end"
    assert memory.conversation.last(1)[0].text == '{"city": "Quito", "weight": 2}'


def test_a_wrong_form_is_corrected_by_the_model(memory: Memory) -> None:
    wrong = says("", ("final_answer", {"city": "Quito", "weight": "heavy"}))
    model = Scripted(wrong, says("", ("final_answer", {"city": "Quito", "weight": 2.5})))
    reply = AgentWithMemory(memory, model, [look_up]).run("Where is it?", output=Parcel)
    assert reply.output == Parcel(city="Quito", weight=2.5)
    assert "weight" in model.asked[1].messages[-1].text
    assert [ask.tool_choice for ask in model.asked] == ["any", "any"]


def test_a_form_with_references_is_checked(memory: Memory) -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    form = {"type": "object", "properties": {"place": {"$ref": "#/$defs/place"}}, "$defs": {"place": place}}
    model = Scripted(*(says("", ("final_answer", {"place": value})) for value in ({}, {"city": "Quito"})))
    reply = AgentWithMemory(memory, model).run("Where is it?", output=form)
    assert reply.output == {"place": {"city": "Quito"}}
    assert "'place'['city'] is missing" in model.asked[1].messages[-1].text


def test_an_answer_that_is_written_instead_of_called_is_read(memory: Memory) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    model = Scripted('```json\n{"city": "Quito"}\n```')
    assert AgentWithMemory(memory, model).run("Where is it?", output=schema).output == {"city": "Quito"}


def test_an_answer_without_the_form_has_failed(memory: Memory) -> None:
    reply = AgentWithMemory(memory, Scripted("In Quito, I think.")).run("Where is it?", output=Parcel)
    assert (reply.output, reply.stopped) == (None, "failed")


@pytest.mark.parametrize("output", [list, "text", 7, {"type": "array"}])
def test_a_form_that_no_service_takes_is_refused_before_anything_is_kept(memory: Memory, output: Any) -> None:
    with pytest.raises(InvalidInput):
        AgentWithMemory(memory, Scripted()).run("Where is it?", output=output)
    assert memory.sessions.list() == []


# Attachments


def test_an_image_reaches_the_model_and_stays_out_of_the_text(memory: Memory, path: Path, tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG cat-bytes")
    model = Scripted("A cat.", "Still a cat.")
    agent = AgentWithMemory(memory, model)
    agent.run("What is it?", attachments=[picture, str(picture)])
    agent.run("And now?")
    for ask in model.asked:
        assert [[one.body for one in message.attachments] for message in ask.messages if message.attachments] == [
            [b"\x89PNG cat-bytes"] * 2
        ]
    said = memory.conversation.last(9)[0]
    assert said.text == "What is it?"
    assert said.metadata["attachments"][0]["name"] == "cat.png"
    assert len(memory.records.keys("attachments")) == 1
    memory.erase()
    memory.close()
    assert b"cat-bytes" not in path.read_bytes()


@pytest.mark.parametrize("how", ["forget", "erase id", "erase session"])
def test_a_removed_message_takes_the_bytes_of_its_attachments(memory: Memory, path: Path, how: str) -> None:
    agent = AgentWithMemory(memory, Scripted(), session="monday")
    shared, own = Attachment(b"\x89PNG shared-bytes", "image/png"), Attachment(b"\x89PNG own-bytes", "image/png")
    agent.run("What are these?", attachments=[shared, own])
    AgentWithMemory(memory, Scripted(), session="tuesday").run("And this?", attachments=[shared])
    message = next(one for one in memory.sessions.messages("monday") if one.role == "user")
    if how == "forget":
        assert not memory.forget(str(message.id)).pending
    elif how == "erase id":
        memory.erase(id=message.id)
    else:
        memory.erase(session="monday")
    assert len(memory.records.keys("attachments")) == 1
    memory.close()
    bytes_left = path.read_bytes()
    assert (b"own-bytes" in bytes_left, b"shared-bytes" in bytes_left) == (False, True)


def test_a_message_and_its_attachments_are_kept_together_or_not_at_all(memory: Memory) -> None:
    large = [Attachment(bytes([n]) * 14_000_000, "image/png") for n in range(5)]
    with pytest.raises(TooLarge):
        AgentWithMemory(memory, Scripted()).run("What are these?", attachments=large)
    assert memory.list({"kind": "message"}) == []
    assert memory.records.keys("attachments") == []


@pytest.mark.parametrize(
    "wrong",
    [{"bytes": "many"}, {"bytes": -1}, {"media_type": "text/html"}, {"sha256": 7}, {"name": None}, {"name": ""}],
)
def test_wrong_references_in_metadata_do_not_stop_a_turn(memory: Memory, wrong: dict[str, Any]) -> None:
    body = Attachment(b"\x89PNG bytes", "image/png", "cat.png")
    reference = {**body.reference, **wrong}
    memory.add_message("user", "Look.", metadata={"attachments": [reference, "x", None]})
    message = memory.conversation.last(1)[0]
    memory.records.write("attachments", [RecordDraft((str(message.id), body.hash), body.body)])
    model = Scripted("All right.")
    assert AgentWithMemory(memory, model).run("And now?").text == "All right."
    shown = [one for ask in model.asked for said in ask.messages for one in said.attachments]
    assert len(shown) == (1 if wrong == {"name": ""} else 0)


@pytest.mark.parametrize("value", ["notes.txt", "missing.png", Path("folder.pdf")])
def test_a_file_that_cannot_be_attached_is_an_error(memory: Memory, tmp_path: Path, value: Any) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "folder.pdf").mkdir()
    with pytest.raises((InvalidInput, NotFound)):
        AgentWithMemory(memory, Scripted()).run("What is it?", attachments=[tmp_path / value])
    with pytest.raises(InvalidInput, match="a path or an Attachment"):
        AgentWithMemory(memory, Scripted()).run("What is it?", attachments=[b"bytes"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput):
        Attachment(b"", "image/png")


# Approval


@tool(approval=True, effect=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    PAID.append(amount)
    return f"paid {amount}"


PAID: list[int] = []


@COLOURS
@pytest.mark.parametrize("decision", ["yes", True, "no", "too much", None])
def test_a_marked_tool_waits_for_a_person(colour: str, path: Path, decision: Any) -> None:
    PAID.clear()
    model = Scripted(says("", ("pay", {"amount": 40})), "Done.")

    def turn() -> AgentReply:
        events = run_stream(colour, path, model, pay, task_id="order")
        return events[-1]

    for _ in range(2):
        with pytest.raises(ApprovalNeeded, match="pay") as waiting:
            turn()
    assert (waiting.value.tool, waiting.value.arguments, PAID) == ("pay", {"amount": 40}, [])
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        assert memory.tasks.get("order").status == "waiting"
        memory.tasks.signal("order", waiting.value.event, decision)
    reply = turn()
    approved = decision in ("yes", True)
    assert [40] * approved == PAID
    assert reply.calls[0].failed is not approved
    if decision == "too much":
        assert "too much" in reply.calls[0].result
    assert len(model.asked) == 2


def test_a_tool_with_approval_needs_a_task(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="task_id"):
        AgentWithMemory(memory, Scripted(), [pay]).run("Pay.")


# Parallel calls, parameters, costs


@COLOURS
@pytest.mark.parametrize("task_id", [None, "t"])
def test_the_calls_of_one_reply_run_in_parallel_but_not_effects(colour: str, path: Path, task_id: str | None) -> None:
    together = threading.Barrier(3, timeout=120)

    def meet(n: int) -> int:
        """Wait for the others."""
        together.wait()
        return n

    order: list[int] = []

    @tool(effect=True)
    def write(n: int) -> int:
        """Write it."""
        order.append(n)
        return n

    calls = [("meet", {"n": n}) for n in range(3)]
    model = Scripted(says("", *calls), says("", *(("write", {"n": n}) for n in range(5))), "Done.")
    reply = run_stream(colour, path, model, meet, write, task_id=task_id)[-1]
    assert [call.result for call in reply.calls] == ["0", "1", "2", "0", "1", "2", "3", "4"]
    assert order == [0, 1, 2, 3, 4]


@COLOURS
def test_at_most_eight_calls_run_at_once(colour: str, path: Path) -> None:
    running: list[int] = []
    most: list[int] = []

    def count(n: int) -> str:
        """Count."""
        running.append(n)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(n)
        return ""

    run_stream(colour, path, Scripted(says("", *(("count", {"n": n}) for n in range(24))), "Done."), count)
    assert 1 < max(most) <= 8


def test_parameters_reach_the_model_and_tokens_have_a_price(memory: Memory) -> None:
    model = Scripted("Hello.")
    reply = AgentWithMemory(memory, model, parameters={"temperature": 0.2}).run("Hi.")
    assert model.asked[0].parameters == {"temperature": 0.2}
    assert reply.cost(3.0, 15.0) == pytest.approx((10 * 3 + 5 * 15) / 1e6)
