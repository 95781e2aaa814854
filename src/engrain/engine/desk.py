"""Working memory as a durable task's desk: its state travels with the task, and its end is knowledge."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from engrain.core.errors import NotFound
from engrain.core.model.items import Citation, Note, Source
from engrain.core.model.tasks import ENDED_STATUSES, TaskRecord
from engrain.ingest.write import redact_json
from engrain.tasks.working_state import Outcome
from engrain.tiers.working import WorkingMemory

if TYPE_CHECKING:
    from engrain.engine.happenings import Happenings

PROCEDURE = "engrain.procedure"  # the variable of working memory that names the version in use


class WorkingDesk:
    """The memory's own working memory, where one task is at hand at a time. A run that begins meanwhile has one of its
    own, and so has one of a task that has ended."""

    def __init__(self, engine: Happenings, procedure: str | None) -> None:
        self._engine = engine
        self._procedure = procedure
        self._task = ""
        self.working = engine.working

    def begin(self, task: TaskRecord, left: Any, procedure: str | None) -> str | None:
        over = task.status in ENDED_STATUSES  # it is only replayed, and nobody works at it
        used = procedure if over else procedure or self._engine.version_of(self._procedure)
        self._task = task.task
        if over or not self.working.take(task.goal or task.task, task.task, left):
            self.working = WorkingMemory(count_tokens=self._engine.services.count_tokens)
            self.working.take(task.goal or task.task, task.task, left)
        if left is None:
            self.working.set_variable(PROCEDURE, used)
        return used

    def changed(self, mark: object) -> bool:
        return self.working.task_id == self._task and self.working.mark() != mark

    def snapshot(self) -> tuple[object, Any]:
        # The mark first: what changes in between is stored again with the next step.
        mark, taken = self.working.mark(), self.working.snapshot()
        return mark, redact_json(taken, self._engine.services.redact)

    def put_back(self, left: Any) -> object:
        if self.working.task_id == self._task:
            self.working.load(left)
        return self.working.mark()

    def done(self, task: TaskRecord, outcome: Outcome, procedure: str | None) -> None:
        if procedure:
            with suppress(NotFound):  # it was forgotten meanwhile
                self._engine.procedural.used(procedure, task.task, True, outcome.text)
        if outcome.text:
            said = f"Successfully completed: {task.goal or task.task}. Outcome: {outcome.text}"
            note = Note(said, 0.7, source=Source(task.task, "agent", tuple(map(Citation, outcome.cites))))
            self._engine.semantic.remember(note, f"task\x1f{task.task}\x1f{task.started_at.isoformat()}")

    def leave(self) -> None:
        self.working.release(self._task)
