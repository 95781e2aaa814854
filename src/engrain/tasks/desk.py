"""What a run does with working memory: begin there, take along what it holds, and tell how it ended."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from engrain.core.journal import TaskRecord


class Outcome(NamedTuple):
    """What a task has led to, in words, and the items that these words rest on."""

    text: str = ""
    cites: tuple[str, ...] = ()


class Desk(Protocol):
    """One run's. A mark stands for a state of working memory; None for no state at all."""

    @property
    def working(self) -> Any:
        """The working memory of the run."""

    def begin(self, task: TaskRecord, left: Any, procedure: str | None) -> str | None:
        """The task is at hand now, with working memory as an earlier run left it and the procedure it named, if any;
        the version of the procedure that it uses."""

    def changed(self, mark: object) -> bool: ...

    def snapshot(self) -> tuple[object, Any]:
        """The present state, marked."""

    def put_back(self, left: Any) -> object:
        """To what a snapshot holds; the mark of that."""

    def done(self, task: TaskRecord, outcome: Outcome, procedure: str | None) -> None:
        """The task has ended well."""

    def leave(self) -> None:
        """Another task may be at hand."""
