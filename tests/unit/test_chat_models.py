"""Chat models speak the protocol of their service, end in time, and fail with words that help."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import for_each
from wire_server import Says, Sends, WireServer, fails

from engrain.core.errors import ConfigError, InvalidInput, ModelFailed
from engrain.core.model.messages import ChatMessage, ChatReply, ChatRequest, ToolCall, ToolSpec
from engrain.maintenance.model_usage import MeteredModel
from engrain.providers import chat, http
from engrain.providers.chat import AnthropicModel, OpenAIModel, open_model

HELLO = ChatRequest((ChatMessage("user", "Hello."),))
LOOK = ToolSpec("look", "Looks somewhere.", {"type": "object", "properties": {"at": {"type": "string"}}})
CERTIFICATE = Path(__file__).with_name("loopback.pem")
VARIABLES = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(key="secret") as running:
        yield running


def model_of(kind: str, server: WireServer, **options: Any) -> AnthropicModel | OpenAIModel:
    settings = {"api_key": "secret", "timeout": 5.0} | options
    if kind == "anthropic":
        return AnthropicModel(**({"base_url": server.anthropic_url} | settings))
    return OpenAIModel("gpt-test", **({"base_url": server.openai_url} | settings))


@pytest.fixture(params=["anthropic", "openai"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What is sent and what comes back


def test_a_reply_has_its_text_its_model_and_its_tokens(server: WireServer, kind: str) -> None:
    server.script = [Says("Hello, Ana.")]
    model = model_of(kind, server)
    assert model.reply(HELLO) == ChatReply("Hello, Ana.", (), "end", model.name, 13, 7)


def test_anthropic_is_asked_in_its_own_words(server: WireServer) -> None:
    ask = ChatRequest(
        (ChatMessage("system", "Be kind."), ChatMessage("user", "Hello.")),
        system="Be brief.",
        tools=(LOOK,),
        max_tokens=50,
    )
    AnthropicModel(api_key=" secret\n", base_url=server.anthropic_url + "/v1/").reply(ask)
    (request,) = server.asked
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "secret"
    assert "authorization" not in request.headers
    assert request.body == {
        "model": "claude-haiku-4-5",
        "max_tokens": 50,
        "system": "Be brief.\n\nBe kind.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
        "tools": [{"name": "look", "description": "Looks somewhere.", "input_schema": LOOK.parameters}],
    }


def test_openai_is_asked_in_its_own_words(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "OPENAI_URL", server.openai_url)
    OpenAIModel("gpt-test", api_key="secret").reply(ChatRequest(HELLO.messages, "Be brief.", (LOOK,), 50))
    (request,) = server.asked
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.body == {
        "model": "gpt-test",
        "max_completion_tokens": 50,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks somewhere.", "parameters": LOOK.parameters},
            }
        ],
    }


def test_another_server_of_that_kind_gets_max_tokens_and_needs_no_key() -> None:
    with WireServer() as server:
        OpenAIModel("llama", base_url=server.openai_url).reply(HELLO)
        (request,) = server.asked
    assert request.body["max_tokens"] == 1024
    assert "authorization" not in request.headers


def test_a_loop_of_tools_is_accepted_from_end_to_end(server: WireServer, kind: str) -> None:
    server.script = [Says("I look.", [("look", {"at": "sky"}), ("look", {"at": "sea"})]), Says("Both are blue.")]
    model = model_of(kind, server)
    said = [ChatMessage("user", "Which colours?")]
    first = model.reply(ChatRequest(tuple(said), tools=(LOOK,)))
    assert (first.text, first.stop) == ("I look.", "tools")
    assert [(call.name, call.arguments) for call in first.calls] == [("look", {"at": "sky"}), ("look", {"at": "sea"})]
    said.append(first.chat_message)
    said += [ChatMessage("tool", "blue", answers=call.id) for call in first.calls]
    second = model.reply(ChatRequest(tuple(said), tools=(LOOK,)))
    assert (second.text, second.calls, second.stop) == ("Both are blue.", (), "end")
    assert server.refused == []


def test_calls_of_the_past_are_accepted_where_none_may_be_made_now(server: WireServer, kind: str) -> None:
    said = (
        *HELLO.messages,
        ChatMessage("assistant", calls=(ToolCall("a", "look"),)),
        ChatMessage("tool", "blue", answers="a"),
    )
    assert model_of(kind, server).reply(ChatRequest(said)).text == "ok"
    assert server.refused == []
    body = server.asked[0].body
    assert body.get("tool_choice") == ({"type": "none"} if kind == "anthropic" else None)


def test_a_damaged_conversation_is_accepted(server: WireServer, kind: str) -> None:
    said = (
        ChatMessage("assistant", "Hello. "),
        ChatMessage("tool", "a result of nothing", answers="gone"),
        ChatMessage("assistant", calls=(ToolCall("bad id", "bad name"), ToolCall("bad id", "look", malformed="{"))),
        ChatMessage("user", "Are you there?"),
    )
    assert model_of(kind, server).reply(ChatRequest(said)).text == "ok"
    assert server.refused == []


@pytest.mark.parametrize(
    ("kind", "word", "stop"),
    [
        ("anthropic", "end_turn", "end"),
        ("anthropic", "stop_sequence", "end"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "refusal", "refused"),
        ("anthropic", "something new", "end"),
        ("openai", "stop", "end"),
        ("openai", "length", "length"),
        ("openai", "content_filter", "refused"),
        ("openai", "something new", "end"),
    ],
)
def test_why_it_stopped_is_told_in_four_words(server: WireServer, kind: str, word: str, stop: str) -> None:
    server.script = [Says("Well", stop=word)]
    assert model_of(kind, server).reply(HELLO).stop == stop


@pytest.mark.parametrize(("kind", "word"), [("anthropic", "max_tokens"), ("openai", "length")])
def test_a_call_that_was_cut_short_is_not_handed_on(server: WireServer, kind: str, word: str) -> None:
    server.script = [Says("I wri", [("write", {"text": "half of i"})], stop=word)]
    reply = model_of(kind, server).reply(HELLO)
    assert (reply.stop, reply.calls) == ("length", ())


@pytest.mark.parametrize(("kind", "word"), [("anthropic", "end_turn"), ("openai", "stop")])
def test_a_call_is_seen_though_the_server_says_end(server: WireServer, kind: str, word: str) -> None:
    server.script = [Says("", [("look", {})], stop=word)]
    assert model_of(kind, server).reply(HELLO).stop == "tools"


# Servers that are nearly compatible


def completion(**message: Any) -> Sends:
    answer = {"choices": [{"message": {"role": "assistant"} | message, "finish_reason": "stop"}]}
    return Sends(200, json.dumps(answer).encode())


def called(*functions: dict[str, Any]) -> Sends:
    return completion(content=None, tool_calls=[{"type": "function", "function": one} for one in functions])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (completion(content=None), ""),
        (completion(), ""),
        (completion(content=[{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]), "in parts"),
        (completion(content="with\x00out", tool_calls=None, refusal=None), "without"),
    ],
)
def test_content_may_be_missing_or_in_parts_and_usage_left_out(server: WireServer, answer: Sends, text: str) -> None:
    server.script = [answer]
    assert model_of("openai", server).reply(HELLO) == ChatReply(text, (), "end", "gpt-test", 0, 0)


def test_a_refusal_is_told(server: WireServer) -> None:
    server.script = [completion(content=None, refusal="I cannot.")]
    reply = model_of("openai", server).reply(HELLO)
    assert (reply.text, reply.stop) == ("I cannot.", "refused")


@pytest.mark.parametrize(
    ("written", "arguments", "malformed"),
    [
        ('{"at": "sky"}', {"at": "sky"}, ""),
        ({"at": "sky"}, {"at": "sky"}, ""),
        ("", {}, ""),
        (" ", {}, ""),
        ("null", {}, ""),
        (None, {}, ""),
        ("{at: sky}", {}, "{at: sky}"),
        ('{"at": ', {}, '{"at": '),
        ('["sky"]', {}, '["sky"]'),
        (["sky"], {}, '["sky"]'),
        ('{"at": NaN}', {}, '{"at": NaN}'),
        ("[" * 99 + "]" * 99, {}, "(nested too deeply)"),
        ('{"a":' * 99 + "1" + "}" * 99, {}, "(nested too deeply)"),
    ],
)
def test_arguments_are_a_dict_or_marked_as_malformed(
    server: WireServer, written: Any, arguments: dict[str, Any], malformed: str
) -> None:
    server.script = [called({"name": "look", "arguments": written})]
    model = model_of("openai", server)
    reply = model.reply(HELLO)
    assert reply.calls == (ToolCall("call_0", "look", arguments, malformed),)
    result = ChatMessage("tool", "That was no JSON object.", answers="call_0", failed=True)
    assert model.reply(ChatRequest((*HELLO.messages, reply.chat_message, result))).text == "ok"
    assert server.refused == []


def test_calls_without_ids_or_names_can_still_be_answered(server: WireServer) -> None:
    server.script = [called({"name": "look", "arguments": "{}"}, {"arguments": "{}"})]
    model = model_of("openai", server)
    reply = model.reply(HELLO)
    assert [(call.id, call.name) for call in reply.calls] == [("call_0", "look"), ("call_1", "")]
    results = [ChatMessage("tool", f"result {n}", answers=call.id) for n, call in enumerate(reply.calls)]
    model.reply(ChatRequest((*HELLO.messages, reply.chat_message, *results)))
    assert [m["content"] for m in server.asked[1].body["messages"] if m["role"] == "tool"] == ["result 0", "result 1"]
    assert server.refused == []


def test_thinking_is_not_part_of_the_text(server: WireServer) -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "Yes."}]
    server.script = [Sends(200, json.dumps({"content": content, "stop_reason": "end_turn"}).encode())]
    assert model_of("anthropic", server).reply(HELLO).text == "Yes."


# When it goes wrong


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_passing_trouble_is_waited_out(server: WireServer, kind: str, status: int) -> None:
    server.script = [fails(status), fails(status, headers={"Retry-After": "0"}), Says("Here I am.")]
    assert model_of(kind, server).reply(HELLO).text == "Here I am."
    assert len(server.asked) == 3


def test_a_lasting_trouble_is_given_up(server: WireServer, kind: str) -> None:
    server.script = [fails(529, "Overloaded")] * 9
    with pytest.raises(ModelFailed, match="answered 529: Overloaded"):
        model_of(kind, server).reply(HELLO)
    assert len(server.asked) == http.MAX_ATTEMPTS


def test_retry_after_is_obeyed(server: WireServer, kind: str) -> None:
    server.script = [fails(429, headers={"Retry-After": "0.4"})]
    model_of(kind, server).reply(HELLO)
    first, second = server.asked
    assert second.at - first.at >= 0.4


def test_a_retry_after_beyond_the_time_is_not_waited_for(server: WireServer, kind: str) -> None:
    server.script = [fails(429, "slow down", {"Retry-After": "600"})]
    started = time.monotonic()
    with pytest.raises(ModelFailed, match=r"slow down\. It asks to wait 600 s"):
        model_of(kind, server).reply(ChatRequest(HELLO.messages, timeout=60))
    assert time.monotonic() - started < 50
    assert len(server.asked) == 1


def test_a_refused_key_names_the_variable_and_never_the_key(server: WireServer, kind: str) -> None:
    with pytest.raises(ModelFailed, match=f"401.*set {VARIABLES[kind]}") as caught:
        model_of(kind, server, api_key="very-wrong").reply(HELLO)
    assert "very-wrong" not in str(caught.value)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (fails(400, "prompt is too long"), "answered 400: prompt is too long"),
        (fails(404, "model 'x' not found"), "404: model 'x' not found.*http://127.*name of the model"),
        (Sends(404, b"<html>nothing here</html>"), "answered 404.*http://127"),
        (Sends(500, b"\xff\x00 no JSON"), "answered 500"),
        (Sends(307, b"", {"Location": "http://127.0.0.1:1/"}), "redirects.*http://127"),
        (Sends(200, b"<html>welcome</html>"), "http://127.*did not answer in JSON.*welcome"),
        (Sends(200, b""), "did not answer in JSON"),
        (Sends(200, b"[]"), "did not return a message"),
        (Sends(200, b"null"), "did not return a message"),
        (Sends(200, b"{}"), "did not return a message.*chat service"),
        (Sends(200, b'{"content": null, "choices": null}'), "did not return a message"),
        (Sends(200, b'{"content": "text", "choices": []}'), "did not return a message"),
        (Sends(200, b'{"content": [7], "choices": [7]}'), "did not return a message"),
        (Sends(200, b'{"content": [{"type": "text"}], "choices": [{"message": "x"}]}'), "did not return a message"),
        (
            Sends(200, b'{"content": [{"type": "text", "text": 7}], "choices": [{"message": {"content": 7}}]}'),
            "did not return a message",
        ),
        (
            Sends(200, b'{"content": [], "stop_reason": {"a": 1}, "choices": [{"message": {"tool_calls": [7]}}]}'),
            "did not return a message",
        ),
        (Sends(200, b'{"type": "error", "error": {"message": "no credit"}}'), "answered with an error: no credit"),
        (Sends(200, b'{"error": {"code": 7}}'), "http://127.*answered with an error"),
    ],
)
def test_nonsense_is_a_typed_error(
    server: WireServer, kind: str, answer: Sends, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_ATTEMPTS", 1)
    server.script = [answer]
    with pytest.raises(ModelFailed, match=message):
        model_of(kind, server).reply(HELLO)


def test_an_answer_that_is_too_large_is_a_typed_error(
    server: WireServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 1_000)
    server.script = [Sends(200, b" " * 1_001)]
    with pytest.raises(ModelFailed, match="more than 1,000 bytes"):
        model_of(kind, server).reply(HELLO)
    assert len(server.asked) == 1


def test_a_request_that_the_service_refuses_is_not_repeated(server: WireServer, kind: str) -> None:
    server.script = [fails(400, "no")] * 3
    with pytest.raises(ModelFailed):
        model_of(kind, server).reply(HELLO)
    assert len(server.asked) == 1


# Time


def test_a_silent_server_is_given_up_in_time_and_not_asked_again(server: WireServer, kind: str) -> None:
    server.script = [Says("too late", delay=600)]
    started = time.monotonic()
    with pytest.raises(ModelFailed, match=r"http://127.*did not answer within 0\.3 s"):
        model_of(kind, server).reply(ChatRequest(HELLO.messages, timeout=0.3))
    assert time.monotonic() - started < 50
    assert len(server.asked) <= 1  # none, where the service was too slow to take it


def test_the_models_own_time_out_holds_where_the_ask_has_none(server: WireServer, kind: str) -> None:
    server.script = [Says("too late", delay=600)]
    with pytest.raises(ModelFailed, match=r"within 0\.2 s"):
        model_of(kind, server, timeout=0.2).reply(HELLO)


@pytest.mark.parametrize("headers", [{}, {"Content-Length": None}])
@pytest.mark.parametrize("status", [200, 500])
def test_a_dripping_server_is_given_up_in_time(
    server: WireServer, kind: str, status: int, headers: dict[str, str | None]
) -> None:
    server.script = [Sends(status, b" " * 5_000, headers, drip=0.05)] * 4
    started = time.monotonic()
    with pytest.raises(ModelFailed):
        model_of(kind, server).reply(ChatRequest(HELLO.messages, timeout=0.5))
    assert time.monotonic() - started < 50


def test_dripping_headers_are_given_up_in_time() -> None:
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                while not done.wait(0.05):
                    connection.sendall(b"H")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        model = OpenAIModel("m", base_url=f"http://127.0.0.1:{listening.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(ModelFailed, match=r"within 0\.4 s"):
            model.reply(ChatRequest(HELLO.messages, timeout=0.4))
        assert time.monotonic() - started < 50
        done.set()
        thread.join()


def test_a_secure_server_is_checked_asked_and_given_up_in_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer(key="secret", certificate=CERTIFICATE) as server:
        with pytest.raises(ModelFailed, match="CERTIFICATE_VERIFY_FAILED"):
            model_of(kind, server).reply(HELLO)
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
        assert model_of(kind, server).reply(HELLO).text == "ok"
        server.script = [Sends(200, b" " * 5_000, {"Content-Length": None}, drip=0.05)]
        started = time.monotonic()
        with pytest.raises(ModelFailed, match=r"within 0\.5 s"):
            model_of(kind, server).reply(ChatRequest(HELLO.messages, timeout=0.5))
        assert time.monotonic() - started < 50


def test_all_attempts_together_end_in_time(server: WireServer, kind: str) -> None:
    busy = fails(503, "busy")
    server.script = [replace(busy, delay=0.2), Says("too late", delay=600)]
    with pytest.raises(ModelFailed, match=r"did not answer within [\d.]+ s") as caught:
        model_of(kind, server).reply(ChatRequest(HELLO.messages, timeout=5))
    left = re.search(r"within ([\d.]+) s", str(caught.value))
    assert left
    assert float(left[1]) < 5, "the second attempt has what the first one left"
    assert len(server.asked) == 2


def test_another_attempt_is_logged_under_our_name_and_is_no_warning(
    server: WireServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = [fails(503, "busy"), Says("There.")]
    with caplog.at_level("DEBUG"):
        assert model_of(kind, server).reply(HELLO).text == "There."
    (told,) = [one for one in caplog.records if one.name == "engrain"]
    assert told.levelname == "INFO"
    assert "busy" in told.message
    assert "Trying again in " in told.message


def test_a_server_that_is_not_there_is_a_typed_error() -> None:
    with pytest.raises(ModelFailed, match=r"cannot be reached at http://127\.0\.0\.1:9/.*Check that it runs there"):
        OpenAIModel("m", base_url="http://127.0.0.1:9").reply(HELLO)


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(
    server: WireServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for proxy in ("http://127.0.0.1:9", "socks5://127.0.0.1:9", "nonsense://x"):
        monkeypatch.setenv("http_proxy", proxy)
        assert model_of(kind, server).reply(HELLO).text == "ok"


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks5://127.0.0.1:9", "nonsense://x", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_a_typed_error(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.setenv(name, "" if name == "no_proxy" else proxy)
    with pytest.raises(ModelFailed, match=r"cannot be reached at http://a\.example"):
        OpenAIModel("m", base_url="http://a.example", timeout=2).reply(HELLO)


# What cannot be asked


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (ChatMessage("system", "Be brief."),),
        (ChatMessage("user", " "),),
        (ChatMessage("user", "Hello."), ChatMessage("assistant", "Hello.")),
        (ChatMessage("user", "Hello."), ChatMessage("assistant", "Hello."), ChatMessage("user", "")),
    ],
)
def test_a_model_is_asked_only_what_it_can_answer(
    server: WireServer, kind: str, messages: tuple[ChatMessage, ...]
) -> None:
    with pytest.raises(InvalidInput, match="the last message"):
        model_of(kind, server).reply(ChatRequest(messages))
    assert server.asked == []


def test_arguments_that_are_not_json_are_a_typed_error(server: WireServer, kind: str) -> None:
    call = ToolCall("a", "look", {"at": object()})
    with pytest.raises(InvalidInput, match="JSON"):
        model_of(kind, server).reply(
            ChatRequest((ChatMessage("user", "Look."), ChatMessage("assistant", calls=(call,))))
        )
    assert server.asked == []


# Settings


@pytest.mark.parametrize(
    ("text", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("openai:gpt-test", "OPENAI_API_KEY")]
)
def test_a_missing_key_names_the_variable(text: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"needs a key. Set {variable}"):
        open_model(text)
    monkeypatch.setenv(variable, "key")
    assert open_model(text).name in ("claude-haiku-4-5", "gpt-test")


def test_a_model_is_opened_by_its_name(server: WireServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    for text, url in [
        ("anthropic", server.anthropic_url),
        ("anthropic:claude-test", server.anthropic_url),
        ("openai:gpt-test", server.openai_url),
    ]:
        assert open_model(text, url).reply(HELLO).text == "ok"
    assert [request.body["model"] for request in server.asked] == ["claude-haiku-4-5", "claude-test", "gpt-test"]


def test_ollama_is_found_where_it_usually_is_and_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://elsewhere.example/v1")
    with WireServer() as server:
        monkeypatch.setattr("engrain.providers.chat.OLLAMA_URL", server.openai_url)
        open_model("ollama:llama3.2:3b").reply(HELLO)
        (request,) = server.asked
    assert request.body["model"] == "llama3.2:3b"
    assert "authorization" not in request.headers


@for_each("text", ["", "gpt-4", "openai", "ollama:", "google:gemini", "Anthropic"])
def test_an_unknown_model_lists_the_known(text: str) -> None:
    with pytest.raises(ConfigError, match="Known: anthropic, anthropic:NAME, openai:NAME, ollama:NAME"):
        open_model(text)


@for_each(
    "url",
    ["localhost:11434", "file:///etc/passwd", "http://", "http://[::1", "http://a:99999", "http://a b", "http://ä"],
)
def test_only_web_addresses_are_opened(url: str) -> None:
    for make in (AnthropicModel, OpenAIModel):
        with pytest.raises(ConfigError, match="http"):
            make("m", base_url=url, api_key="key")


def test_a_key_that_cannot_be_one_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY") as caught:
        AnthropicModel(api_key="“quoted-key”")
    assert "quoted-key" not in str(caught.value)


def test_the_key_is_not_in_what_is_shown_of_a_model() -> None:
    model = AnthropicModel(api_key="very-secret")
    assert "very-secret" not in repr(model) + repr(vars(model))


def test_the_base_url_may_come_from_the_environment(
    server: WireServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.anthropic_url)
    monkeypatch.setenv("OPENAI_BASE_URL", server.openai_url)
    assert model_of(kind, server, base_url=None).reply(HELLO).text == "ok"


def test_the_addresses_are_those_of_the_services() -> None:
    assert chat.ANTHROPIC_URL == "https://api.anthropic.com"
    assert chat.OPENAI_URL == "https://api.openai.com/v1"


# Counting


def test_use_is_counted_failures_too(server: WireServer, kind: str) -> None:
    server.script = [Says("one"), fails(400, "too long"), Says("two")]
    model = MeteredModel(model_of(kind, server))
    model.reply(HELLO)
    with pytest.raises(ModelFailed):
        model.reply(HELLO)
    model.reply(HELLO)
    assert (model.calls, model.failures, model.tokens_in, model.tokens_out) == (3, 1, 26, 14)
    assert "too long" in (model.last_error or "")
    assert model.name == model_of(kind, server).name


class Odd:
    name = "odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def reply(self, ask: ChatRequest) -> ChatReply:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "message"), [(KeyError("x"), "odd failed: KeyError"), ("text", "returned a str"), (None, "NoneType")]
)
def test_a_model_of_somebody_else_may_do_anything(answer: Any, message: str) -> None:
    model = MeteredModel(Odd(answer))
    with pytest.raises(ModelFailed, match=message):
        model.reply(HELLO)
    assert model.failures == 1


def test_a_bad_ask_is_no_failure_of_the_model(server: WireServer, kind: str) -> None:
    model = MeteredModel(model_of(kind, server))
    with pytest.raises(InvalidInput):
        model.reply(ChatRequest(()))
    assert model.failures == 0


class Slow(int):
    """A number that lets other threads run in the middle of an addition."""

    def __radd__(self, other: int) -> int:
        time.sleep(0.001)
        return int(other) + int(self)


def test_no_count_is_lost_between_threads() -> None:
    model = MeteredModel(Odd(ChatReply("", (), "end", "odd", Slow(2), Slow(1))))
    threads = [threading.Thread(target=lambda: [model.reply(HELLO) for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (model.calls, model.tokens_in, model.tokens_out) == (80, 160, 80)
