"""What a run does with working memory: begin there, take along what it holds, and tell how it ended."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

from engrain.core.model.tasks import TaskRecord
from engrain.tasks.serialization import opened, packed, plain


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


class TaskState:
    """One text in the journal, of which a program sees its own value only. Working memory is that of the end of the
    last step: what the program does after it is done again when the task goes on."""

    def __init__(self, record: TaskRecord, desk: Desk | None) -> None:
        found = opened(record.snapshot)
        self.task = record
        self._desk = desk
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
        if self._desk is None:
            return False
        before, self._procedure = self._procedure, self._desk.begin(self.task, self._working, self._procedure)
        return self._procedure != before

    def tells(self, outcome: Outcome) -> bool:
        """Whether there is anything to say when the task is done."""
        return self._desk is not None and bool(outcome.text or self._procedure)

    def done(self, outcome: Outcome) -> None:
        if self._desk is not None:
            self._desk.done(self.task, outcome, self._procedure)

    def caught_up(self) -> None:
        """All recorded steps were replayed, and with them the code in between has run once more: working memory is put
        back to what it was at the end of the last."""
        if self._desk is not None and self._working is not None and self._mark is None:
            self._mark = self._desk.put_back(self._working)

    def changed(self) -> bool:
        """Whether working memory is another than the journal has."""
        return self._desk is not None and self._desk.changed(self._mark)

    def with_working(self) -> tuple[str, object]:
        """What to store at the end of a step, and the mark to give to `stored` afterwards."""
        assert self._desk is not None
        mark, self._working = self._desk.snapshot()
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
