"""What a run does with working memory: begin there, take along what it holds, and tell how it ended."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Note, Source
from engrain.core.model.tasks import ENDED_STATUSES, TaskRecord
from engrain.ingest.write import redact_json
from engrain.ports import Services
from engrain.tasks.serialization import opened, packed, plain
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import PROCEDURE, ScopedWorkingMemory
from engrain.tiers.semantic import SemanticMemory
from engrain.tiers.working import WorkingMemory


class Outcome(NamedTuple):
    """What a task has led to, in words, and the items that these words rest on."""

    text: str = ""
    cites: tuple[str, ...] = ()


class WorkingStateBinding:
    """Ties one run to the working memory of a view: its state travels with the task, and its end is knowledge.

    One task is in progress there at a time. A run that begins meanwhile gets a working memory of its own, and so does
    the run of a task that has ended. A mark stands for a state of working memory; None for no state at all."""

    def __init__(self, services: Services, scope: Scope, view: ScopedWorkingMemory, procedure: str | None) -> None:
        self._services = services
        self._scope = scope
        self._view = view
        self._procedure = procedure
        self._task = ""
        self.working: WorkingMemory = view

    def begin(self, task: TaskRecord, left: Any, procedure: str | None) -> str | None:
        """Put the task in progress, with working memory as an earlier run left it; the version of its procedure."""
        over = task.status in ENDED_STATUSES  # it is only replayed, and nobody works at it
        used = procedure if over else procedure or self._view.version_of(self._procedure)
        self._task = task.task
        if over or not self.working.take(task.goal or task.task, task.task, left):
            self.working = WorkingMemory(count_tokens=self._services.count_tokens)
            self.working.take(task.goal or task.task, task.task, left)
        if left is None:
            self.working.set_variable(PROCEDURE, used)
        return used

    def changed(self, mark: object) -> bool:
        return self.working.task_id == self._task and self.working.mark() != mark

    def snapshot(self) -> tuple[object, Any]:
        """The present state, marked."""
        # The mark first: what changes in between is stored again with the next step.
        mark, taken = self.working.mark(), self.working.snapshot()
        return mark, redact_json(taken, self._services.redact)

    def put_back(self, left: Any) -> object:
        """Return to a snapshot; the mark of that."""
        if self.working.task_id == self._task:
            self.working.load(left)
        return self.working.mark()

    def done(self, task: TaskRecord, outcome: Outcome, procedure: str | None) -> None:
        """Keep the outcome of a task that ended well."""
        if procedure:
            with suppress(NotFound):  # it was forgotten meanwhile
                ProceduralMemory(self._services, self._scope).used(procedure, task.task, True, outcome.text)
        if outcome.text:
            said = f"Successfully completed: {task.goal or task.task}. Outcome: {outcome.text}"
            note = Note(said, 0.7, source=Source(task.task, "agent", tuple(map(Citation, outcome.cites))))
            request = f"task\x1f{task.task}\x1f{task.started_at.isoformat()}"
            SemanticMemory(self._services, self._scope).remember(note, request)

    def leave(self) -> None:
        """Let another task be in progress."""
        self.working.release(self._task)


class TaskState:
    """One text in the journal, of which a program sees its own value only. Working memory is that of the end of the
    last step: what the program does after it is done again when the task goes on."""

    def __init__(self, record: TaskRecord, binding: WorkingStateBinding | None) -> None:
        found = opened(record.snapshot)
        self.task = record
        self._binding = binding
        # As the program sees it, and as the journal has it: while steps are replayed they differ.
        self._value = self._stored = json.dumps(found.get("value"))
        self._working = found.get("working")
        self._procedure: str | None = found.get("procedure")
        self.caught: int = found.get("caught", 0)  # failures up to this number the program went on from
        self.deaths: int = found.get("deaths", 0)  # of workers, in a row, with no step to show for it
        self._mark: object = None  # the state of working memory that the journal has

    @property
    def value(self) -> Any:
        return json.loads(self._value)

    @value.setter
    def value(self, value: object) -> None:
        self._value = plain(value, "the snapshot")

    def begin(self) -> bool:
        """Put the task at hand; whether that is to be stored at once, because it is the first to name a procedure."""
        if self._binding is None:
            return False
        before, self._procedure = self._procedure, self._binding.begin(self.task, self._working, self._procedure)
        return self._procedure != before

    def tells(self, outcome: Outcome) -> bool:
        """Whether there is anything to say when the task is done."""
        return self._binding is not None and bool(outcome.text or self._procedure)

    def done(self, outcome: Outcome) -> None:
        if self._binding is not None:
            self._binding.done(self.task, outcome, self._procedure)

    def caught_up(self) -> None:
        """All recorded steps were replayed, and with them the code in between has run once more: working memory is put
        back to what it was at the end of the last."""
        if self._binding is not None and self._working is not None and self._mark is None:
            self._mark = self._binding.put_back(self._working)

    def changed(self) -> bool:
        """Whether working memory is another than the journal has."""
        return self._binding is not None and self._binding.changed(self._mark)

    def with_working(self) -> tuple[str, object]:
        """What to store at the end of a step, and the mark to give to `stored` afterwards."""
        assert self._binding is not None
        mark, self._working = self._binding.snapshot()
        return self.body(), mark

    def stored(self, mark: object) -> None:
        self._mark = mark

    def with_value(self) -> str:
        """What to store when the program keeps something."""
        self._stored = self._value
        return self.body()

    def body(self) -> str:
        counts = {"caught": self.caught or None, "deaths": self.deaths or None}
        more = {"working": self._working, "procedure": self._procedure, **counts}
        return packed(self._stored, {name: one for name, one in more.items() if one is not None})
