"""Tie a run to working memory: load its state, and store it with the steps."""

from __future__ import annotations

import json
from typing import Any

from engrain.core.model.tasks import ENDED_STATUSES, TaskRecord
from engrain.ingest.write import redact_json
from engrain.ports import Services
from engrain.tasks.result_encoding import decode_envelope, encode_plain, encode_with_extras
from engrain.tiers.scoped_working import PROCEDURE_VARIABLE, ScopedWorkingMemory
from engrain.tiers.working import WorkingMemory


class WorkingStateBinding:
    """Tie one run to the working memory of a view.

    A view has one current task. A run that begins meanwhile gets a working memory of its own, and so does the run of a
    task that has ended.
    """

    def __init__(self, services: Services, view: ScopedWorkingMemory, procedure: str | None) -> None:
        self._services = services
        self._view = view
        self._procedure = procedure
        self._task = ""
        self.working: WorkingMemory = view

    def begin(self, task: TaskRecord, stored: Any, procedure: str | None) -> str | None:
        """Make the task current, with the working memory that an earlier run stored. Return its procedure's version."""
        ended = task.status in ENDED_STATUSES  # such a task is only replayed
        used = procedure if ended else procedure or self._view.version_of(self._procedure)
        self._task = task.task
        if ended or not self.working.take(task.goal or task.task, task.task, stored):
            self.working = WorkingMemory(count_tokens=self._services.count_tokens)
            self.working.take(task.goal or task.task, task.task, stored)
        if stored is None:
            self.working.set_variable(PROCEDURE_VARIABLE, used)
        return used

    def changed_since(self, revision: object) -> bool:
        return self.working.task_id == self._task and self.working.revision() != revision

    def snapshot(self) -> tuple[object, Any]:
        # The revision first: a change in between is stored again with the next step.
        revision, values = self.working.revision(), self.working.snapshot()
        return revision, redact_json(values, self._services.redact)

    def restore(self, stored: Any) -> object:
        """Load a snapshot, and return the revision that it makes."""
        if self.working.task_id == self._task:
            self.working.load(stored)
        return self.working.revision()

    def leave(self) -> None:
        self.working.release(self._task)


class TaskState:
    """The state that the journal stores with a task: the program's value, working memory and counters.

    Working memory is that of the end of the last step. When the task continues, the program repeats its later changes.
    """

    def __init__(self, record: TaskRecord, binding: WorkingStateBinding | None) -> None:
        found = decode_envelope(record.snapshot)
        self.task = record
        self._binding = binding
        # While steps are replayed, the value of the program differs from the stored one.
        self._value = self._stored_value = json.dumps(found.get("value"))
        self._working = found.get("working")
        self.procedure: str | None = found.get("procedure")
        self.handled_failures: int = found.get("handled_failures", 0)  # the program caught all up to this number
        self.crashes: int = found.get("crashes", 0)  # workers in a row that died without completing a step
        self._stored_revision: object = None  # the revision of working memory that the journal has

    @property
    def value(self) -> Any:
        return json.loads(self._value)

    @value.setter
    def value(self, value: object) -> None:
        self._value = encode_plain(value, "the snapshot")

    def begin(self) -> bool:
        """Make the task current. True if the state must be stored at once, because it names a new procedure."""
        if self._binding is None:
            return False
        before, self.procedure = self.procedure, self._binding.begin(self.task, self._working, self.procedure)
        return self.procedure != before

    def has_outcome(self, text: str) -> bool:
        return self._binding is not None and bool(text or self.procedure)

    def restore_after_replay(self) -> None:
        """Undo what the code between replayed steps did to working memory a second time."""
        if self._binding is not None and self._working is not None and self._stored_revision is None:
            self._stored_revision = self._binding.restore(self._working)

    def working_changed(self) -> bool:
        return self._binding is not None and self._binding.changed_since(self._stored_revision)

    def encode_with_working(self) -> tuple[str, object]:
        """Return the text to store at the end of a step, and the revision for `mark_stored`."""
        assert self._binding is not None
        revision, self._working = self._binding.snapshot()
        return self.encode(), revision

    def mark_stored(self, revision: object) -> None:
        self._stored_revision = revision

    def encode_with_value(self) -> str:
        self._stored_value = self._value
        return self.encode()

    def encode(self) -> str:
        counts = {"handled_failures": self.handled_failures or None, "crashes": self.crashes or None}
        extras = {"working": self._working, "procedure": self.procedure, **counts}
        return encode_with_extras(
            self._stored_value, {name: extra for name, extra in extras.items() if extra is not None}
        )
