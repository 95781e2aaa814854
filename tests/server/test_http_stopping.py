"""A server in its own process: it starts, answers, and stops without losing an acknowledged write."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from server_kit import run_server

from engrain import Memory, Store
from engrain.cli.main import root
from engrain.server.keys import ApiKey, KeyFile, KeyLimits


@contextmanager
def start(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """Run `engrain serve`, and yield its process, its address and the lines that it has printed so far."""
    command = [sys.executable, "-m", "engrain", "serve", "--store", str(folder / "agent.db"), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    lines: list[str] = []
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        lines.append(first)
        match = re.search(r" at (\S+) \(", first)
        assert match, first + process.stderr.read()
        reader = threading.Thread(target=lambda: lines.extend(process.stderr or ()))
        reader.start()
        yield process, match[1], lines
        process.send_signal(signal.SIGTERM)
        process.wait(120)
        reader.join(60)
    finally:
        process.kill()
        process.wait(60)


def test_a_signal_lets_requests_finish_and_loses_nothing(tmp_path: Path) -> None:
    key = KeyFile(tmp_path / "agent.db.keys.json").add(
        ApiKey("", "load", "", ("read", "write"), user="ana", limits=KeyLimits(None, None))
    )
    kept: list[str] = []
    failed: list[int] = []

    def write(address: str, number: int) -> None:
        with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=120) as client:
            for count in range(1_000):
                try:
                    answer = client.post("/v1/remember", json={"text": f"Note {number}-{count}."})
                except httpx.TransportError:
                    return
                (kept.append(answer.json()["id"]) if answer.is_success else failed.append(answer.status_code))

    with start(tmp_path, "--quiet", "--drain", "10") as (process, address, lines):
        writers = [threading.Thread(target=write, args=(address, number)) for number in range(4)]
        for one in writers:
            one.start()
        while len(kept) < 20:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for one in writers:
            one.join(120)
        assert process.wait(120) == 0
    assert "Stopped." in lines[-1]
    assert failed == []
    with Store(tmp_path / "agent.db", background=False) as store:
        stored = {item.id for item in store.memory(user="ana").list(limit=10_000)}
    assert set(kept) <= stored


def test_the_log_has_no_content(tmp_path: Path) -> None:
    with start(tmp_path, "--user", "ana") as (_, address, lines), httpx.Client(base_url=address) as client:
        client.post("/v1/remember", json={"text": "A private zorblax.", "slot": "user.zorblax"})
        client.get("/v1/slots/user.zorblax")
        client.get("/v1/items?after=zorblax")
        client.get("/nothing/zorblax")
        client.post("/v1/remember", content=b"zorblax", headers={"Content-Type": "application/json"})
    log = "".join(lines)
    assert "zorblax" not in log
    assert "GET /v1/slots/{name} 200" in log
    assert "POST /v1/remember 400" in log


def test_a_request_that_outlives_the_drain_does_not_keep_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def wait(self: Memory, query: str, **_: object) -> None:
        busy.set()
        go_on.wait(180)

    try:
        with run_server(tmp_path, drain=1) as server:
            monkeypatch.setattr(Memory, "recall", wait)
            client = server.client(server.add_key("ana", user="ana"))

            answers: list[httpx.Response] = []
            thread = threading.Thread(target=lambda: answers.append(client.post("/v1/recall", json={"query": "x"})))
            thread.start()
            assert busy.wait(120)
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 60
            assert server.drained is False
            thread.join(120)
            assert [one.status_code for one in answers] == [503]
            assert "Idempotency-Key" in answers[0].json()["detail"]
    finally:
        go_on.set()


def test_a_draining_server_is_not_ready(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        client = server.client()
        assert client.get("/readyz").json() == {"status": "ready"}
        server.api.draining.set()
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert client.get("/healthz").json() == {"status": "alive"}


def test_metrics_are_labelled_by_route_and_need_the_right_to_operate(tmp_path: Path) -> None:
    with run_server(tmp_path) as server:
        client = server.client(server.add_key("ana", user="ana", rights=("read", "operate")))
        client.get("/v1/slots/user.secret")
        client.get("/somewhere/secret")
        text = client.get("/metrics").text
        assert 'engrain_http_requests_total{method="GET",route="/v1/slots/{name}",status="404"} 1' in text
        assert 'engrain_http_requests_total{method="GET",route="(none)",status="404"} 1' in text
        assert 'engrain_http_request_duration_seconds_count{route="/v1/slots/{name}"} 1' in text
        assert "secret" not in text
        reader = server.client(server.add_key("reader", user="ana", rights=("read",)))
        assert reader.get("/metrics").status_code == 403
        assert server.client().get("/metrics").status_code == 401


# Starting


def fail(folder: Path, *options: str) -> str:
    done = CliRunner().invoke(root, ["serve", "--store", str(folder / "agent.db"), *options])
    assert done.exit_code != 0, done.output
    return done.stderr


def test_a_server_without_keys_starts_only_for_this_machine(tmp_path: Path) -> None:
    assert "engrain keys add" in fail(tmp_path)
    for host in ("0.0.0.0", "::"):
        assert "does not listen on" in fail(tmp_path, "--user", "ana", "--host", host, "--port", "0")
        assert "does not listen on" in fail(tmp_path, "--no-keys", "--host", host, "--port", "0")
    assert not (tmp_path / "agent.db").exists(), "a server that does not start makes no store"


def test_a_server_with_keys_refuses_a_scope_of_its_own(tmp_path: Path) -> None:
    KeyFile(tmp_path / "agent.db.keys.json").add(ApiKey("", "a", "", ("read",), user="ana"))
    assert "omit --user" in fail(tmp_path, "--user", "ana")


def test_a_unix_socket_is_replaced_only_if_nobody_listens(tmp_path: Path) -> None:
    path = tmp_path / "e.sock"
    with start(tmp_path, "--user", "ana", "--socket", str(path)):
        assert "another server listens" in fail(tmp_path, "--user", "ana", "--socket", str(path))
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            assert client.get("/v1/scope").json()["user"] == "ana"
    assert not path.exists()
    path.write_text("a file")
    assert "is not a socket" in fail(tmp_path, "--user", "ana", "--socket", str(path))


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['uvicorn'] = None; from engrain.cli import main; main()"
    command = [sys.executable, "-c", blocked, "serve", "--user", "ana", "--store", str(tmp_path / "agent.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'pip install "engrain[server]"' in done.stderr


def test_nothing_of_the_extra_is_imported_without_it(tmp_path: Path) -> None:
    program = (
        "import sys; import engrain.cli.commands.serve, engrain.cli.commands.serve, engrain.core.http_routes\n"
        "from engrain import Memory\n"
        f"Memory({str(tmp_path / 'a.db')!r}, user='ana', background=False).close()\n"
        "loaded = {'starlette', 'pydantic', 'uvicorn', 'httptools', 'uvloop'} & set(sys.modules)\n"
        "sys.exit(f'{loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
