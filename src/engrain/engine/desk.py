"""Working memory as a durable task's desk: its state travels with the task, and its end is knowledge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engrain.core.items import Source
from engrain.core.journal import TaskRecord
from engrain.core.notes import Note

if TYPE_CHECKING:
    from engrain.engine.happenings import Happenings

KEY = "working"  # under which a snapshot of working memory is kept with a task


class WorkingDesk:
    """One task lies there at a time: a run that begins while another is at hand leaves working memory alone."""

    def __init__(self, engine: Happenings, procedure: str | None) -> None:
        self._engine = engine
        self._procedure = procedure
        self._mine = False

    def begin(self, task: TaskRecord, kept: Any) -> None:
        working = self._engine.working
        if working.task:
            return
        self._mine = True
        if _ours(kept):
            working.load(kept[KEY])
        else:
            self._engine.start_task(task.goal or task.task, None, self._procedure, task.task)

    def snapshot(self, kept: Any) -> Any:
        """What a program kept itself is its own; otherwise the desk as it is left."""
        own = kept is None or _ours(kept)
        return {KEY: self._engine.working.snapshot()} if self._mine and own else None

    def done(self, task: TaskRecord, outcome: str) -> None:
        if not self._mine:
            return
        self._engine.count_procedure(task.task, True, outcome)
        if outcome:
            said = f"Successfully completed: {task.goal or task.task}. Outcome: {outcome}"
            note = Note(said, 0.7, source=Source("task", "agent"))
            self._engine.semantic.remember(note, f"task\x1f{task.task}\x1f{task.started_at.isoformat()}")

    def leave(self) -> None:
        if self._mine:
            self._mine = False
            self._engine.working.clear()


def _ours(kept: Any) -> bool:
    return isinstance(kept, Mapping) and isinstance(kept.get(KEY), Mapping)
