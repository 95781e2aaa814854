"""Changes of a memory arrive as they are committed, and a reader continues where it stopped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from server_kit import RunningServer

from engrain.server import events


@pytest.fixture(autouse=True)
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)


def read_events(answer: httpx.Response) -> Iterator[dict[str, str]]:
    event: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line and "data" in event:
            yield event
        name, _, value = line.partition(": ")
        event = {**event, name: value} if line else {}


def test_changes_of_the_own_memory_arrive_in_order(server: RunningServer) -> None:
    client = server.client(server.add_key("ana", user="ana"))
    ana, ben = server.store.memory(user="ana"), server.store.memory(user="ben")
    before = ana.remember("Before the stream.")
    with client.stream("GET", "/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = read_events(answer)
        ben.remember("Of somebody else.")
        first = ana.remember("Ana likes tea.")
        assert json.loads(next(found)["data"]) == {"id": first, "removed": False}
        ana.forget(first)
        removed = next(found)
        assert removed["event"] == "removed"
        assert json.loads(removed["data"])["id"] == first
        assert before not in removed["data"]


def test_a_reader_continues_after_the_last_event_that_it_saw(server: RunningServer) -> None:
    client = server.client(server.add_key("ana", user="ana"))
    ana = server.store.memory(user="ana")
    with client.stream("GET", "/v1/events") as answer:
        found = read_events(answer)
        ana.remember("One.")
        last = next(found)["id"]
    missed = [ana.remember("Two."), ana.remember("Three.")]
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": last}) as answer:
        found = read_events(answer)
        assert [json.loads(next(found)["data"])["id"] for _ in missed] == missed
    assert client.get("/v1/events", headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_reader_that_goes_away_frees_its_stream(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 1)
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.02)
    client = server.client(server.add_key("ana", user="ana"))
    with client.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()  # kept: httpx closes the stream with its iterator
        assert next(lines).startswith("retry")
        refused = client.get("/v1/events")
        assert refused.status_code == 429
        assert "retry-after" in refused.headers
    wait_until(lambda: server.api.streams.count == 0)


def wait_until(is_true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_requests_that_come_together_do_not_pass_the_limit(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_STREAMS", 3)
    key, found, leave = server.add_key("ana", user="ana"), list[int](), threading.Event()

    def listen() -> None:
        with server.client(key) as client, client.stream("GET", "/v1/events") as answer:
            found.append(answer.status_code)
            leave.wait(180)

    readers = [threading.Thread(target=listen) for _ in range(12)]
    for one in readers:
        one.start()
    wait_until(lambda: len(found) == len(readers))
    leave.set()
    for one in readers:
        one.join(120)
    assert sorted(found) == [200] * 3 + [429] * 9


def test_streams_of_one_memory_share_a_poll_and_its_reads(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.2)
    items, reads = server.store.services.items, list[int]()
    changes = items.changes
    monkeypatch.setattr(items, "changes", lambda *given: (reads.append(given[1]), changes(*given))[1])
    key = server.add_key("ana", user="ana")
    with ExitStack() as stack:
        streams = []
        for _ in range(8):
            client = stack.enter_context(server.client(key))
            lines = stack.enter_context(client.stream("GET", "/v1/events")).iter_lines()
            assert next(lines).startswith("retry")
            streams.append(lines)
        assert len(server.api.streams.polls) == 1
        reads.clear()
        began = time.monotonic()
        id = server.store.memory(user="ana").remember("Ana likes tea.")
        for lines in streams:
            assert id in next(line for line in lines if line.startswith("data: "))
    # Streams that poll on their own would read eight times in each of these periods.
    assert len(reads) <= 3 + 2 * (time.monotonic() - began) / 0.2
    wait_until(lambda: not server.api.streams.polls)


def test_a_stopping_server_ends_its_streams(server: RunningServer) -> None:
    client = server.client(server.add_key("ana", user="ana"))
    with client.stream("GET", "/v1/events") as answer:
        lines = answer.iter_lines()
        next(lines)
        server.server.stop()
        assert list(lines)[-1:] in ([], [""])
