"""Keys, retries, errors and the lifetime of a memory on a server."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from forked import fork_child, wait_for_child
from server_kit import RunningServer, run_server

from engrain import (
    AccessDenied,
    AsyncMemory,
    AsyncStore,
    ConfigError,
    InvalidInput,
    LimitReached,
    Memory,
    OutcomeUnknown,
    Scope,
    Store,
    StoreClosed,
    StoreUnavailable,
)
from engrain.server.keys import KeyLimits

QUICK = {"client": {"timeout": 2, "retries": 2}}


def with_key(key: str) -> dict[str, dict[str, str]]:
    return {"client": {"api_key": key}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with run_server(tmp_path, embedder=HashEmbedder()) as running:
        yield running


def test_a_key_names_the_memory(server: RunningServer) -> None:
    key = server.add_key("phone", user="ana", agent="helper")
    with Memory(server.url, settings=with_key(key)) as memory:
        id = memory.remember("Ana likes tea.")
        assert memory.scope == Scope(user="ana", agent="helper")
    assert server.store.memory(user="ana", agent="helper").get(id).text == "Ana likes tea."
    with Memory(server.url, user="ana", agent="helper", settings=with_key(key)) as memory:
        assert memory.get(id) is not None


def test_a_key_for_several_users_and_the_variable(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_API_KEY", server.add_key("backend", tenant="acme", chooses=("user",)))
    with Store(server.url) as store:
        for user in ("ana", "bö/% x"):
            store.memory(user=user, tenant="acme").remember(f"I am {user}.")
        assert store.memory(user="bö/% x").list()[0].text == "I am bö/% x."
        assert store.memory(user="bö/% x").scope == Scope("acme", None, "bö/% x")
        assert [info.user for info in store.memories()] == ["ana", "bö/% x"]


def test_a_wrong_key_and_a_missing_right_are_named(server: RunningServer) -> None:
    for key in (None, "engrain_no_such"):
        with Memory(server.url, user="ana", settings=with_key(key)) as memory, pytest.raises(AccessDenied, match="key"):
            memory.list()
    reader = server.add_key("reader", user="ana", rights=("read",))
    with Memory(server.url, settings=with_key(reader)) as memory:
        assert memory.list() == []
        with pytest.raises(AccessDenied, match="write"):
            memory.remember("x")
    with (
        Memory(server.url, user="bo", settings=with_key(reader)) as memory,
        pytest.raises(AccessDenied, match="Engrain-User"),
    ):
        memory.list()


def test_reads_need_the_key_s_leave(server: RunningServer) -> None:
    server.store.memory(agent="team").remember("The office is in Quito.")
    team = Scope(agent="team")
    plain = server.add_key("plain", user="ana")
    reader = server.add_key("reader", user="ana", reads=(team,))
    with Memory(server.url, settings=with_key(plain)) as memory:
        assert memory.recall("Where is the office in Quito?").hits == ()
    with (
        Memory(server.url, settings=with_key(plain), reads=[team]) as memory,
        pytest.raises(AccessDenied, match="may not read"),
    ):
        memory.recall("Where is the office in Quito?")
    for reads in ((), (team,)):
        with Memory(server.url, settings=with_key(reader), reads=reads) as memory:
            (hit,) = memory.recall("Where is the office in Quito?").hits
            assert (hit.scope, memory.get(hit.item.id).text) == (team, "The office is in Quito.")
            assert memory.list() == []


def test_a_server_without_tls_needs_no_certificates(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("certificates were loaded"))
    with Memory(server.url, settings=with_key(server.add_key("ana", user="ana"))) as memory:
        assert memory.list() == []


def test_a_limit_is_waited_for_and_then_an_error(server: RunningServer) -> None:
    key = server.add_key("slow", user="ana", limits=KeyLimits(requests_per_second=2, items_per_day=1))
    with Memory(server.url, settings={"client": {"api_key": key, "timeout": 60}}) as memory:
        began = time.monotonic()
        for _ in range(4):
            memory.list()
        assert time.monotonic() - began > 0.9
        memory.remember("one")
        with pytest.raises(LimitReached, match="items"):
            memory.remember("two")


class Answers(ThreadingHTTPServer):
    """A server that answers as a script says, and keeps the requests."""

    daemon_threads = True

    def __init__(self, script: list[Any]) -> None:
        self.script, self.seen = script, list[tuple[str, str, dict[str, str]]]()
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        found = self.server.script.pop(0) if self.server.script else (200, {"id": "x"}, {})
        if found is None:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, body, headers = found
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@contextmanager
def answers(*script: Any) -> Iterator[tuple[Memory, Answers]]:
    httpd = Answers(list(script))
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        patient = {"client": {"timeout": 60, "retries": 2}}
        with Memory(f"http://127.0.0.1:{httpd.server_port}/base/", user="ana", settings=patient) as memory:
            yield memory, httpd
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


BUSY = (503, {"detail": "busy", "error": "StoreBusy"}, {"Retry-After": "0"})


def test_reads_and_writes_with_an_id_are_repeated() -> None:
    with answers(None, BUSY, (200, {"items": []}, {})) as (memory, httpd):
        assert memory.list() == []
        assert [path for _, path, _ in httpd.seen] == ["/base/v1/list"] * 3
    with answers(None, None) as (memory, httpd):
        assert memory.remember("Tea.", request_id="r-1") == "x"
        assert [headers["Idempotency-Key"] for _, _, headers in httpd.seen] == ["r-1"] * 3


def test_a_write_without_an_id_is_never_repeated() -> None:
    with answers(None) as (memory, httpd):
        with pytest.raises(OutcomeUnknown, match="request_id"):
            memory.remember("Tea.")
        assert len(httpd.seen) == 1
    with answers((429, {"detail": "wait"}, {"Retry-After": "1"})) as (memory, httpd):
        assert memory.remember("Tea.") == "x"


def test_an_unknown_outcome_has_the_request_id() -> None:
    with answers(None, None, None) as (memory, _), pytest.raises(OutcomeUnknown) as caught:
        memory.remember("Tea.", request_id="r-1")
    assert caught.value.request_id == "r-1"


def test_an_answer_of_something_else_is_told() -> None:
    page = (502, b"<html>bad gateway</html>", {})
    with answers(page, page, page) as (memory, _), pytest.raises(StoreUnavailable, match="502"):
        memory.list()
    with answers((404, b"nothing", {})) as (memory, _), pytest.raises(ConfigError, match="404"):
        memory.list()


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path}/none.sock", "http://127.0.0.1:9"):
        with Memory(url, user="ana", settings=QUICK) as memory, pytest.raises(StoreUnavailable, match=url):
            memory.remember("Tea.")


@pytest.mark.parametrize(
    "url", ["https://", "http://ana:secret@host", "https://host/?key=1", "unix://relative", "http://host:x"]
)
def test_a_url_that_is_none_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Memory(url, user="ana")
    assert "secret" not in str(caught.value)


def test_a_settings_file_names_a_server(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "engrain.toml"
    file.write_text(f'[stores]\ndefault = "{server.url}"\n[client]\ntimeout = 7\n')
    with Memory(file, settings=with_key(server.add_key("phone", user="ana"))) as memory:
        assert memory.get(memory.remember("Tea.")).text == "Tea."
        assert memory.store.channel.connection.timeout == 7  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="timeout"):
        Memory(server.url, settings={"client": {"timeout": -1}})


def test_what_belongs_to_the_server_is_refused() -> None:
    with pytest.raises(InvalidInput, match="embedder"):
        Memory("https://host", user="ana", embedder="local")
    with pytest.raises(InvalidInput, match="read_only"):
        Store("https://host", read_only=True)
    with Memory("https://host", user="ana") as memory, pytest.raises(InvalidInput, match="folders"):
        memory.erase(folders=["notes"])


def test_names_of_other_systems_are_answered_as_by_a_local_memory() -> None:
    with Memory("https://host", user="ana") as memory:
        with pytest.raises(AttributeError, match=r"'RemoteMemory' object has no attribute 'search'\. Use recall"):
            memory.search("tea")  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'limit'\. Use n="):
            memory.recall("tea", limit=3)  # type: ignore[call-arg]


def test_a_closed_memory_says_so(server: RunningServer) -> None:
    memory = Memory(server.url, settings=with_key(server.add_key("phone", user="ana")))
    memory.close()
    with pytest.raises(StoreClosed):
        memory.list()


def test_the_async_face_speaks_http_as_well(server: RunningServer) -> None:
    key = server.add_key("backend", chooses=("tenant", "agent", "user"))

    async def use() -> None:
        async with AsyncMemory(server.url, user="ana", settings=with_key(key)) as memory:
            ids = await asyncio.gather(*(memory.remember(f"Note {n}.") for n in range(20)))
            assert len(set(ids)) == 20
            assert (await memory.slots.get("none")) is None
            session = memory.session("monday")
            await session.add_message("user", "I live in Lima.")
            assert [one.text for one in await session.messages()] == ["I live in Lima."]
        async with AsyncStore(server.url, settings=with_key(key)) as store:
            assert [info.items for info in await store.memories()] == [22]
            with pytest.raises(ConfigError, match="opened store"):
                async with store.memory(user="ana").task("t"):
                    pass

    asyncio.run(use())


def test_views_of_one_memory_have_default_sessions_of_their_own(server: RunningServer) -> None:
    key = server.add_key("phone", user="ana")
    with Memory(server.url, settings=with_key(key)) as first, Memory(server.url, settings=with_key(key)) as second:
        first.start_session("one")
        second.start_session("two")
        first.working.set_goal("tea")
        assert (first.current_session, second.current_session) == ("one", "two")
        assert (first.working.goal, second.working.goal) == ("tea", "")


def test_threads_and_forks_share_a_memory(server: RunningServer) -> None:
    with Memory(server.url, settings=with_key(server.add_key("phone", user="ana"))) as memory:
        memory.remember("before")
        threads = [threading.Thread(target=memory.remember, args=(f"thread {n}",)) for n in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        child = fork_child(lambda: memory.remember("from the child"))
        memory.remember("from the parent")
        assert wait_for_child(child) == 0
        texts = {item.text for item in memory.list()}
        assert {"from the child", "from the parent"} <= texts
        assert len(texts) == 11


def test_the_key_is_never_shown(server: RunningServer) -> None:
    key = server.add_key("phone", user="ana")
    with Memory(server.url, settings=with_key(key)) as memory:
        assert key not in repr(memory) + repr(memory.store) + repr(memory.store.channel.connection)  # type: ignore[attr-defined]


def test_a_client_loads_neither_the_engine_nor_the_server() -> None:
    code = (
        "import sys; from engrain import Memory; m = Memory('https://host', user='ana'); m.close();"
        "print([n for n in ('apsw', 'onnxruntime', 'starlette', 'pydantic', 'uvicorn') if n in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
