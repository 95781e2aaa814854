"""Runs that end as if their process had been killed, for the tests of durable tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engrain_conformance.clock import SetClock

from engrain import Memory, Retry, Run

QUICK = Retry(2, first=0.0)


class Killed(BaseException):
    """Stands for the end of the process: no handler of the library may tidy up after it."""


class Calls(list[Any]):
    def noting(self, name: str, answer: Any = None) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.append(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


def kill(run: Run) -> None:
    """As if the process had died: the run never says how it ended, and its lease has run out."""
    run.execution._is_closed = True
    run.execution._step_journal.holder.stop()  # type: ignore[union-attr]


def killed_in(memory: Memory, clock: SetClock, task: str, body: Callable[[Run], Any], **terms: Any) -> None:
    with pytest.raises(Killed), memory.task(task, **terms) as run:  # noqa: PT012
        try:
            body(run)
        except Killed:
            kill(run)
            raise
    clock.advance(60)


def dies(*_: Any, **__: Any) -> None:
    raise Killed
