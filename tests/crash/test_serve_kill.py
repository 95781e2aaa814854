"""A server under load is killed again and again: every write that it answered is there, once."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import serve_program
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.core.model.items import Item

CLIENTS = 12


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client(threading.Thread):
    """Writes to the memory of its own user, and repeats each write with the same key until it is answered."""

    def __init__(self, number: int, place: Path, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.user = f"user-{number}"
        self.answered: dict[str, str] = {}
        self.repeated = 0
        self.refused: list[str] = []
        self._socket, self._over = place, over

    def run(self) -> None:
        while not self._over.is_set():
            text = f"Note {len(self.answered)} of {self.user}."
            while not self._over.is_set() and not self._send(text):
                self.repeated += 1
                time.sleep(0.02)

    def _send(self, text: str) -> bool:
        """False if no answer came."""
        # A connection for each write: a server that was killed is met in every state.
        connection = UnixConnection(self._socket)
        headers = {"Idempotency-Key": text, "Engrain-User": self.user, "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/remember", json.dumps({"text": text}), headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if status == 200:
            self.answered[text] = json.loads(content)["id"]
        elif status != 503:
            self.refused.append(content.decode())
        return status == 200


def start_server(path: Path, place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, serve_program.__file__, str(path), str(place)])


@pytest.mark.parametrize("seconds", [1.0, pytest.param(600.0, marks=pytest.mark.slow)])
def test_a_server_that_is_killed_has_every_write_that_it_answered(
    tmp_path: Path, seconds: float, report_counts: Callable[..., None]
) -> None:
    path, place, over = tmp_path / "store.db", tmp_path / "engrain.sock", threading.Event()
    clients = [Client(number, place, over) for number in range(CLIENTS)]
    server, kills = start_server(path, place), 0
    ends, late = time.monotonic() + seconds, time.monotonic() + seconds + 240
    try:
        for client in clients:
            client.start()
        # A slow machine gets more time: without answers and kills nothing would be shown.
        while time.monotonic() < ends or kills < 3:
            assert time.monotonic() < late, "nobody is answered"
            answered = sum(len(client.answered) for client in clients)
            time.sleep(random.uniform(0.2, min(2.0, seconds / 5)))
            assert server.poll() is None, "the server ended by itself"
            if sum(len(client.answered) for client in clients) > answered:
                server.kill()
                server.wait()
                server, kills = start_server(path, place), kills + 1
    finally:
        over.set()
        for client in clients:
            client.join(30)
        server.kill()
        server.wait()
    assert not any(client.is_alive() for client in clients), "a request hangs"
    assert [text for client in clients for text in client.refused] == []
    assert sum(client.repeated for client in clients) > 0
    check_store(path, clients)
    report_counts(kills=kills, answers=sum(len(client.answered) for client in clients))


def list_all(memory: Memory) -> list[Item]:
    """Return all items: more than 10,000 are written in ten minutes on a fast disk."""
    items: list[Item] = []
    while page := memory.list(limit=10_000, after=items[-1].id if items else None):
        items += page
    return items


def check_store(path: Path, clients: list[Client]) -> None:
    with Store(path, embedder=HashEmbedder(), background=False) as store:
        for client in clients:
            items = list_all(store.memory(user=client.user))
            assert max(Counter(item.text for item in items).values(), default=1) == 1
            found = {item.text: item.id for item in items}
            assert {text: found.get(text) for text in client.answered} == client.answered
        assert [one for one in store.doctor() if one.state == "fail"] == []
