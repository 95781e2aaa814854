"""Made journal-v1.db with the first version that had durable tasks: python tests/files/journal_v1.py NEW-FILE.

The file is kept as it was written then. Do not make it anew when the schema changes: old journals must load for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import EffectNotPerformed, Memory, Retry, Run, StepAmbiguous, TaskWaiting

LARGE = "large ü " * 2_000


class Stopped(Exception):
    """Ends a run early, so that its task is left unfinished."""


def fails(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


def order(run: Run, stop: bool) -> list[Any]:
    """Every class of step, then a point at which the first run stops."""
    found = [
        run.step("plan", lambda order: {"order": order, "parts": [1, 2.5, None, True, "ü"]}, "order-42"),
        run.step("plan", lambda: "again"),
        run.step("fetch", lambda: LARGE, key="a"),
        run.step("fetch", lambda: LARGE, key="b"),
        run.remember_step("note", "Order 42 goes out in two parcels.", importance=0.8, slot="order.42"),
        run.effect("mail", lambda to, token: f"to {to}", "ana@example.com", key_as="token"),
        run.sleep_until("2039-01-01"),
        run.wait_event("paid"),
    ]
    run.keep({"at": "packing", "left": [3, 4]})
    if stop:
        raise Stopped
    return [*found, run.step("pack", lambda: "packed")]


def charge(run: Run, outcome: Callable[..., Any]) -> Any:
    return run.effect("charge", outcome, 12, on_ambiguous="halt")


def flaky(run: Run, outcome: Callable[..., Any]) -> Any:
    return run.step("call", outcome, retries=Retry(1, first=0))


def nap(run: Run) -> str:
    run.sleep_until("2040-02-01T00:00:00+00:00", block=False)
    return str(run.step("wake", lambda: "awake"))


def make(path: Path) -> None:
    clock = SetClock()
    with Memory(path, user="ana", clock=clock, embedder=HashEmbedder(), background=False) as memory:
        memory.signal("order-42", "paid", {"sum": 3})
        with suppress(Stopped), memory.task("order-42", goal="ship it", version="1", max_age=timedelta(days=99)) as run:
            order(run, stop=True)
        clock.advance()
        with suppress(StepAmbiguous), memory.task("charge") as run:
            charge(run, fails(OSError("timed out")))
        clock.advance()
        with suppress(EffectNotPerformed), memory.task("refused") as run:
            charge(run, fails(EffectNotPerformed("no funds")))
        clock.advance()
        with suppress(OSError), memory.task("flaky") as run:
            flaky(run, fails(OSError("no route")))
        clock.advance()
        with suppress(TaskWaiting), memory.task("nap") as run:
            nap(run)
        with memory.task("done") as run:
            run.outcome = str(run.step("only", lambda: "one"))
        with memory.task("held", lease=30) as run:
            run.step("before", lambda: 1)
            run.course._over = True  # its worker died here
            run.course._tenure.stop()  # type: ignore[union-attr]
        with suppress(Stopped), memory.task("late", max_age=1) as run:
            raise Stopped
        clock.advance()
        memory.recover(lambda run: None, limit=1, version="none")
        memory.checkpoint("job", {"completed": ["a"], "results": {"a": "ü"}})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
