"""What a run does with working memory: begin there, leave its state behind, and tell how it ended."""

from __future__ import annotations

from typing import Any, Protocol

from engrain.core.journal import TaskRecord


class Desk(Protocol):
    def begin(self, task: TaskRecord, kept: Any) -> None:
        """The task is at hand now; `kept` is what an earlier run stored last, or None."""

    def snapshot(self, kept: Any) -> Any:
        """What to store with a task that is not done; None to leave what was kept."""

    def done(self, task: TaskRecord, outcome: str) -> None:
        """The task has ended well."""

    def leave(self) -> None:
        """Another task may be at hand."""
