"""Requests to remember that come at once are written in one go, and each has its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from server_kit import RunningServer

from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.server.keys import KeyLimits
from engrain.server.problems import Problem
from engrain.server.thread_pool import BATCHES_AT_A_TIME, MAX_BATCH, Batches, VerbPool

USERS = 12


def test_requests_of_many_users_at_once_have_their_own_answers(server: RunningServer) -> None:
    keys = [server.add_key(f"key-{number}", user=f"user-{number}") for number in range(USERS)]
    poor = server.add_key("poor", user="poor", limits=KeyLimits(None, None, items_per_day=1))

    def send(number: int) -> list[tuple[int, str]]:
        with server.client(keys[number]) as client:
            bodies: list[tuple[dict[str, object], str]] = [
                ({"text": f"Fact of {number}."}, "a"),
                ({"text": ""}, "b"),
                ({"text": f"Fact of {number}."}, "a"),
                ({"text": f"Another of {number}."}, "a"),
                ({"text": "Late.", "ttl": 5, "expires_at": "2030-01-01"}, "c"),
            ]
            answers = [client.post("/v1/remember", json=body, headers={"Idempotency-Key": id_}) for body, id_ in bodies]
        return [(one.status_code, one.text) for one in answers]

    def send_poor(_: int) -> int:
        with server.client(poor) as client:
            return client.post("/v1/remember", json={"text": f"Mine {time.time_ns()}."}).status_code

    with ThreadPoolExecutor(USERS + 3) as threads:
        poor_answers = threads.map(send_poor, range(3))
        found = list(threads.map(send, range(USERS)))
    for answers in found:
        assert [status for status, _ in answers] == [200, 422, 200, 409, 422], answers
        assert answers[0] == answers[2]
    assert len({answers[0] for answers in found}) == USERS
    assert sorted(poor_answers) == [200, 429, 429]
    for number, key in enumerate(keys):
        with server.client(key) as client:
            (item,) = client.post("/v1/list", json={}).json()["items"]
            assert item["text"] == f"Fact of {number}."


def test_an_embedder_that_fails_for_one_text_fails_no_other(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is embedded in one call."""
    embedder = server.store.services.embedder
    embed = embedder.embed

    def refuse(texts: Sequence[str], kind: object) -> object:
        if any("refused" in text for text in texts):
            raise InvalidInput("this embedder refuses the text.")
        return embed(texts, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(embedder, "embed", refuse)
    key = server.add_key("ana", user="ana")

    def send(number: int) -> int:
        with server.client(key) as client:
            text = "It is refused." if number == 3 else f"Text {number}."
            return client.post("/v1/remember", json={"text": text}).status_code

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(send, range(6))) == [200, 200, 200, 422, 200, 200]


def test_calls_that_come_while_batches_run_are_the_next_batch() -> None:
    release = threading.Event()
    batches: list[int] = []

    def do(calls: Sequence[int]) -> list[int | Exception]:
        batches.append(len(calls))
        assert release.wait(120)
        return [EmbedderFailed("no") if call == 7 else call * 2 for call in calls]

    async def run() -> list[int | BaseException]:
        queue = Batches(VerbPool(4, 1_000), do)
        tasks = [asyncio.ensure_future(queue.run(number)) for number in range(MAX_BATCH + 10)]
        await asyncio.sleep(0.05)
        tasks[9].cancel()  # its client went away
        release.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    assert batches[:BATCHES_AT_A_TIME] == [1] * BATCHES_AT_A_TIME
    assert sorted(batches[BATCHES_AT_A_TIME:]) == [10 - BATCHES_AT_A_TIME, MAX_BATCH]  # in two threads
    assert isinstance(answers.pop(9), asyncio.CancelledError)
    assert isinstance(answers.pop(7), EmbedderFailed)
    assert answers == [number * 2 for number in range(MAX_BATCH + 10) if number not in (7, 9)]


def test_calls_beyond_the_queue_are_refused_at_once() -> None:
    release = threading.Event()

    def do(calls: Sequence[int]) -> list[int]:
        assert release.wait(120)
        return list(calls)

    async def run() -> list[object]:
        queue = Batches(VerbPool(2, 3), do)
        tasks = [asyncio.ensure_future(queue.run(number)) for number in range(12)]
        await asyncio.sleep(0.05)
        refused = [task for task in tasks if task.done()]
        release.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(task.exception(), Problem) for task in refused)
        return [len(refused), sum(isinstance(one, int) for one in done)]

    assert asyncio.run(run()) == [5, 7]
