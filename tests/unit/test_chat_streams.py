"""Streamed answers of both services: the pieces come as they are sent, and the reply is the one sent whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire_server import Says, Sends, WireServer, fails, stream_anthropic, stream_openai, streams

from engrain.core.errors import InvalidInput, ModelFailed
from engrain.core.model.messages import Attachment, ChatMessage, ChatRequest, ToolSpec
from engrain.ports import Model
from engrain.providers import http
from engrain.providers.chat import AnthropicModel, OpenAIModel

ASK = ChatRequest((ChatMessage("user", "hello"),), "Be brief.", (ToolSpec("look_up", "Look it up."),))
KINDS = ("anthropic", "openai")


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as started:
        yield started


def model_on(kind: str, server: WireServer) -> Model:
    if kind == "anthropic":
        return AnthropicModel("m", base_url=server.anthropic_url)
    return OpenAIModel("m", base_url=server.openai_url)


def whole_answer(server: WireServer, kind: str, said: Says) -> dict[str, Any]:
    return server._anthropic(said, {"model": "m"}) if kind == "anthropic" else server._openai(said, {"model": "m"})


def list_events(server: WireServer, kind: str, said: Says) -> list[dict[str, Any]]:
    return (stream_anthropic if kind == "anthropic" else stream_openai)(whole_answer(server, kind, said))


@pytest.mark.parametrize("kind", KINDS)
def test_a_streamed_reply_equals_the_whole_one(server: WireServer, kind: str) -> None:
    said = Says("Grüße, here is 日本 text.", [("look_up", {"what": "päper", "n": 3}), ("look_up", {})])
    server.script = [said, said]
    pieces: list[str] = []
    model = model_on(kind, server)
    streamed, whole = model.reply(replace(ASK, on_text=pieces.append)), model.reply(ASK)
    named = [replace(reply, calls=tuple(replace(c, id="") for c in reply.calls)) for reply in (streamed, whole)]
    assert named[0] == named[1]
    assert "".join(pieces) == said.text
    assert len(pieces) > 3
    assert not server.refused


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_breaks_off_is_a_failure_at_every_event(server: WireServer, kind: str) -> None:
    events = list_events(server, kind, Says("A whole answer.", [("look_up", {"what": "it"})]))
    last = next(
        at for at, event in enumerate(events)
        if event.get("type") == "message_stop" or any(c["finish_reason"] for c in event.get("choices", ()))
    )  # fmt: skip
    for end in range(1, last + 1):
        server.script = [streams(*events[:end])]
        with pytest.raises(ModelFailed, match="broke off its answer"):
            model_on(kind, server).reply(replace(ASK, on_text=len))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_of_a_stream_is_reported(server: WireServer, kind: str) -> None:
    events = list_events(server, kind, Says("A whole answer."))
    server.script = [streams(*events[:3], {"type": "error", "error": {"type": "overloaded", "message": "too busy"}})]
    with pytest.raises(ModelFailed, match="too busy"):
        model_on(kind, server).reply(replace(ASK, on_text=len))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "content", [b'data: {"type": \n\n', b"data: [1, 2]\n\n", b"data: 7\n\n", b"\xff\xfe", b"", b"[DONE]"]
)
def test_nonsense_in_a_stream_is_a_failure(server: WireServer, kind: str, content: bytes) -> None:
    server.script = [Sends(200, content, {"Content-Type": "text/event-stream"})]
    with pytest.raises(ModelFailed):
        model_on(kind, server).reply(replace(ASK, on_text=len))


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_stream_is_asked_for_again_only_before_its_first_event(
    server: WireServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.001)
    server.script = [fails(529, "overloaded"), Says("ok then")]
    assert model_on(kind, server).reply(replace(ASK, on_text=len)).text == "ok then"
    server.script = [streams(*list_events(server, kind, Says("A whole answer."))[:4]), Says("a second answer")]
    with pytest.raises(ModelFailed):
        model_on(kind, server).reply(replace(ASK, on_text=len))
    assert len(server.script) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_does_not_stream_is_read_whole(server: WireServer, kind: str) -> None:
    import json

    server.script = [Sends(200, json.dumps(whole_answer(server, kind, Says("All at once."))).encode())]
    pieces: list[str] = []
    assert model_on(kind, server).reply(replace(ASK, on_text=pieces.append)).text == "All at once."
    assert pieces == ["All at once."]


@pytest.mark.parametrize(("kind", "before_first_event"), [("anthropic", False), ("openai", True)])
def test_a_stream_that_drips_for_ever_is_given_up_in_time(
    server: WireServer, kind: str, before_first_event: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "STREAM_SECONDS", 2.5)
    events = [] if before_first_event else list_events(server, kind, Says("A whole answer."))[:3]
    start = streams(*events)
    server.script = [replace(start, content=start.content + b": still here\n\n" * 5_000, drip=0.002)]
    started = time.monotonic()
    with pytest.raises(ModelFailed, match=r"did not end its answer within 2\.5 s"):
        model_on(kind, server).reply(replace(ASK, on_text=len, timeout=2.0))
    assert time.monotonic() - started < 50
    assert len(server.asked) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyError("mine"), TypeError("mine"), ValueError("mine")])
def test_an_error_of_the_listener_is_not_taken_for_one_of_the_service(
    server: WireServer, kind: str, error: Exception
) -> None:
    def listen(piece: str) -> None:
        raise error

    server.script = [Says("A whole answer.")]
    with pytest.raises(type(error), match="mine"):
        model_on(kind, server).reply(replace(ASK, on_text=listen))


# Streams in the forms that services send, made up. Each has a text, two calls and 7 tokens.
FORMS = sorted((Path(__file__).parent / "streams").glob("*.sse"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_streams_in_the_forms_of_several_services_are_read(server: WireServer, form: Path) -> None:
    server.script = [Sends(200, form.read_bytes(), {"Content-Type": "text/event-stream; charset=utf-8"})]
    pieces: list[str] = []
    reply = model_on(form.stem.partition("-")[0], server).reply(replace(ASK, on_text=pieces.append))
    assert (reply.text, "".join(pieces), reply.stop) == ("One moment.", "One moment.", "tools")
    assert [(call.id, call.arguments) for call in reply.calls] == [("a", {"what": "tea"}), ("b", {})]
    assert (reply.tokens_in, reply.tokens_out) == (3, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_reach_the_service_and_cannot_replace_its_messages(server: WireServer, kind: str) -> None:
    model_on(kind, server).reply(replace(ASK, parameters={"temperature": 0.2}))
    assert server.asked[-1].body["temperature"] == 0.2
    with pytest.raises(InvalidInput, match="messages cannot be among the parameters"):
        model_on(kind, server).reply(replace(ASK, parameters={"messages": []}))


def test_a_server_that_wants_max_completion_tokens_gets_it(server: WireServer) -> None:
    refusal = fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    server.script = [refusal, Says("one"), Says("two")]
    model = model_on("openai", server)
    assert [model.reply(ASK).text, model.reply(ASK).text] == ["one", "two"]
    assert ["max_tokens" in asked.body for asked in server.asked] == [True, False, False]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", ["any", "look_up"])
def test_a_tool_can_be_demanded(server: WireServer, kind: str, choice: str) -> None:
    model_on(kind, server).reply(replace(ASK, tool_choice=choice))
    assert "tool_choice" in server.asked[-1].body
    assert not server.refused


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("media", ["image/png", "application/pdf"])
def test_attachments_stand_before_the_words_of_the_user(server: WireServer, kind: str, media: str) -> None:
    attached = Attachment(b"\x89PNG bytes", media, "one.png")
    model_on(kind, server).reply(ChatRequest((ChatMessage("user", "What is it?", attachments=(attached,)),)))
    assert not server.refused
    parts = server.asked[-1].body["messages"][-1]["content"]
    assert [part["type"] for part in parts][1:] == ["text"]
    assert len(parts) == 2
