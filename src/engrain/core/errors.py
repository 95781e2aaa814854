"""Every error that engrain raises, in one tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple


class EngrainError(Exception):
    """The root of the tree. Catch it to catch every error that engrain raises on purpose."""


class BackendUnavailableWarning(UserWarning):
    """A server that holds a part of the memory does not answer. The result says what it lacks."""


# Errors in the input


class InvalidInput(EngrainError, ValueError):
    """A value cannot be used. The message names the value and says what is accepted. Nothing was written."""


class EmptyText(InvalidInput):
    """The text is empty or has only white space."""


class BadText(InvalidInput):
    """The text is not valid Unicode: a lone surrogate, a NUL, or bytes that are not UTF-8."""


class TooLarge(InvalidInput):
    """A value is larger than its limit."""


class BadLine(NamedTuple):
    """An error in one line of a file. `type` is the name of the error's class."""

    line: int
    type: str
    message: str


class BadFile(InvalidInput):
    """A file cannot be loaded. `lines` lists its errors. Nothing was written."""

    MAX_SHOWN = 3

    def __init__(self, lines: Sequence[BadLine]) -> None:
        shown = [f"line {bad.line}: {bad.message}" for bad in lines[: self.MAX_SHOWN]]
        more = [f"and {len(lines) - self.MAX_SHOWN:,} more"] if len(lines) > self.MAX_SHOWN else []
        super().__init__(f"nothing was loaded. {' '.join([*shown, *more])}")
        self.lines = tuple(lines)


class UnknownKey(InvalidInput):
    """A filter or setting names a key that does not exist."""


class NotFound(EngrainError, LookupError):
    """There is no such item, slot, session or task in this scope."""


class Conflict(EngrainError):
    """Another writer was first. Read again and decide."""


class OnHold(EngrainError):
    """A legal hold prevents the removal of this data."""


# Errors in the environment


class ConfigError(EngrainError):
    """A URL or a setting cannot be used."""


class BackendMissing(EngrainError, ImportError):
    """An optional package is not installed. The message has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} is not installed. Run: pip install "engrain[{extra}]".')
        self.extra = extra


class AccessDenied(EngrainError):
    """The server does not accept this API key, or the key lacks the right for this."""


class EmbedderFailed(EngrainError):
    """The embedder returned no usable vectors. Search by words still works, and the vectors are computed later."""


class RerankerFailed(EngrainError):
    """The reranker returned no usable scores. Recall answers without them."""


class ModelFailed(EngrainError):
    """A language model returned no usable answer."""


class McpServerFailed(EngrainError):
    """An MCP server cannot be used, or a call of one of its tools failed. The message has its words."""


# Errors of the store


class StoreError(EngrainError):
    """The store cannot do this now."""


class StoreClosed(StoreError):
    """The memory was closed before this call."""


class NotADatabase(StoreError):
    """The path is a folder, or the file is not an engrain store."""


class WrongKey(StoreError):
    """The store is encrypted with another key, or not encrypted at all."""


class NewerStore(StoreError):
    """The store was written by a newer engrain. Upgrade: pip install -U engrain."""


class OlderStore(StoreError):
    """The store was written by an older engrain and was opened read-only. Open it for writing once to migrate it."""


class ReadOnlyStore(StoreError):
    """The file or its folder cannot be written."""


class DiskFull(StoreError):
    """The disk is full. Nothing of this write was kept. Free some space and repeat it."""


class StoreBusy(StoreError):
    """Another process held the store for too long."""


class BeingErased(StoreError):
    """This user's memory is being erased, or was erased during this call. Once that is done, a new one can begin."""


class StoreCorrupt(StoreError):
    """The file is damaged. Run: engrain doctor."""


class SchemaMismatch(StoreCorrupt):
    """The file has a table, index, trigger or view that engrain did not make, or lacks one. Nothing in it was run."""


class StoreUnavailable(StoreError):
    """The server did not answer."""


class LimitReached(StoreError):
    """The API key has used up one of its limits for now. Nothing was written."""


class OutcomeUnknown(StoreError):
    """The commit failed, or an interrupt came during the write, so that it may or may not be durable.

    Repeat it with the same `request_id`, which is here if the write had one. `interrupt` is the exception that a signal
    handler raised, if that was the reason.
    """

    def __init__(
        self, message: str = "", request_id: str | None = None, interrupt: BaseException | None = None
    ) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.interrupt = interrupt

    def raise_interrupt(self) -> None:
        """Raise the interrupt, if there is one. Call it before you repeat the write or carry on."""
        if self.interrupt is not None:
            raise self.interrupt


def raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt that broke off a write, if that is what the error reports."""
    if isinstance(error, OutcomeUnknown):
        error.raise_interrupt()


@contextmanager
def tolerate(*kinds: type[BaseException], report: Callable[[BaseException], object] = lambda _: None) -> Iterator[None]:
    """Leave the block at an error of these kinds, and pass it to `report`. An interrupt is never lost."""
    try:
        yield
    except kinds as exc:
        raise_interrupt(exc)
        report(exc)


def find_interrupt(error: BaseException) -> BaseException:
    """Return the interrupt that broke off a write, or the error itself. Code that handles errors must not lose it."""
    return error.interrupt if isinstance(error, OutcomeUnknown) and error.interrupt is not None else error


# Durable tasks


class TaskError(EngrainError):
    """A durable task cannot continue."""


class TaskClaimed(TaskError):
    """Another worker runs this task. The message names the worker."""


class TaskEnded(TaskError):
    """The task has ended. No new step of it can run."""


class TaskWaiting(TaskError):
    """The task sleeps or waits for an event, and its worker has released it. `recover` or a new start continues it."""


class ApprovalNeeded(TaskWaiting):
    """A tool call waits for a person. Show `tool` and `arguments`, signal `event` with "yes" or a reason, run again."""

    def __init__(
        self, message: str, event: str = "", tool: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.event, self.tool, self.arguments = event, tool, dict(arguments or {})


class InputChanged(TaskError):
    """A recorded step was called again with other arguments or as another kind of step."""


class VersionChanged(TaskError):
    """The task was started by another version of the code, and `accepts` does not list that version."""


class StepConcurrent(TaskError):
    """A step of this name is already running. Steps that run concurrently each need a key=."""


class StepNested(TaskError):
    """A step was called inside another step of its task. A replay would skip it together with the outer step."""


class StepAmbiguous(TaskError):
    """An effect was started and its outcome is unknown. Find out if it happened, then `resolve` it."""

    def __init__(self, message: str, task: str = "", step: str = "", occurrence: int = 0, key: str = "") -> None:
        super().__init__(message)
        self.task, self.step, self.occurrence, self.key = task, step, occurrence, key


class StepFailed(TaskError):
    """A failure recorded by an earlier run, whose own class no longer exists."""


class EffectNotPerformed(TaskError):
    """Raised by an effect that certainly did not happen, so that it may be tried again."""


class LeaseLost(BaseException):
    """Another worker took this task over, or the task was parked, cancelled or ended. Stop at once.

    It is not an Exception: a broad `except Exception` in a step must not swallow it and go on writing.
    """
