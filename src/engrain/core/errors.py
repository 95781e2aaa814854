"""Every error that engrain raises, in one tree; each message says what happened and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EngrainError(Exception):
    """The root: catch this to catch everything that engrain raises on purpose."""


class BackendUnavailableWarning(UserWarning):
    """A server that holds a part of the memory does not answer; what can be done without it is done, and the answer
    says what it is without."""


# What the caller gave


class InvalidInput(EngrainError, ValueError):
    """A value cannot be used; the message names it and says what is accepted. Nothing was written."""


class EmptyText(InvalidInput):
    """The text is empty or only white space."""


class BadText(InvalidInput):
    """The text is not valid Unicode: a lone surrogate, a NUL, or bytes that are not UTF-8."""


class TooLarge(InvalidInput):
    """A value is over its stated limit."""


class BadLine(NamedTuple):
    """What is wrong with one line of a file; `type` is the name of an error."""

    line: int
    type: str
    message: str


class BadFile(InvalidInput):
    """A file cannot be loaded; `lines` says line by line what is wrong. Nothing was written."""

    SHOWN = 3

    def __init__(self, lines: Sequence[BadLine]) -> None:
        told = [f"line {one.line}: {one.message}" for one in lines[: self.SHOWN]]
        more = [f"and {len(lines) - self.SHOWN:,} more"] if len(lines) > self.SHOWN else []
        super().__init__(f"nothing was loaded. {' '.join([*told, *more])}")
        self.lines = tuple(lines)


class UnknownKey(InvalidInput):
    """A filter or setting names a key that does not exist."""


class NotFound(EngrainError, LookupError):
    """There is no such item, slot, session or task in this scope."""


class Conflict(EngrainError):
    """Somebody else wrote first; read again and decide."""


class OnHold(EngrainError):
    """A legal hold keeps this data from being removed."""


# What the caller's surroundings lack


class ConfigError(EngrainError):
    """A URL or a setting cannot be used."""


class BackendMissing(EngrainError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} is not installed. Run: pip install "engrain[{extra}]".')
        self.extra = extra


class EmbedderFailed(EngrainError):
    """The embedder gave no usable vectors. Words still find everything; the vectors are made up for later."""


class ModelFailed(EngrainError):
    """A language model gave no usable answer."""


# What the store met


class StoreError(EngrainError):
    """The store cannot do this now."""


class StoreClosed(StoreError):
    """The memory was closed before this call."""


class NotADatabase(StoreError):
    """The path is a folder, or the file is not an engrain store."""


class WrongKey(StoreError):
    """The store is encrypted with another key than the one given, or is not encrypted at all."""


class NewerStore(StoreError):
    """The store was written by a newer engrain. Upgrade: pip install -U engrain."""


class OlderStore(StoreError):
    """The store was written by an older engrain, and cannot be brought up to date because it was opened read-only."""


class ReadOnlyStore(StoreError):
    """The file or its folder cannot be written."""


class DiskFull(StoreError):
    """The disk is full. Nothing of this write was kept; free some space and repeat it."""


class StoreBusy(StoreError):
    """Another process held the store for too long."""


class BeingErased(StoreError):
    """This user's memory is being erased and takes nothing in, or was erased while this was on its way; once that is
    done, an empty one can begin."""


class StoreCorrupt(StoreError):
    """The file is damaged. Run: engrain doctor."""


class StoreUnavailable(StoreError):
    """The server did not answer."""


class OutcomeUnknown(StoreError):
    """The commit reported an error, so the write may or may not be durable. Repeat it with the same request_id."""


# Durable tasks


class TaskError(EngrainError):
    """A durable task cannot go on."""


class TaskClaimed(TaskError):
    """Another worker runs this task; the message names it."""


class TaskEnded(TaskError):
    """The task has ended, so no new step of it can run."""


class TaskWaiting(TaskError):
    """The task sleeps or waits for an event and was given back; `recover` or a new start continues it."""


class InputChanged(TaskError):
    """A recorded step was called again with other arguments, or as a step of another kind."""


class VersionChanged(TaskError):
    """The task was started by another version of the code, which was not declared in `accepts`."""


class StepConcurrent(TaskError):
    """A step of this name is under way: steps that run side by side need a key= each."""


class StepNested(TaskError):
    """A step was called inside another step of its task: a replay passes over what a done step did inside."""


class StepAmbiguous(TaskError):
    """An effect was begun and its outcome is not known: look whether it happened, then `resolve` it."""

    def __init__(self, message: str, task: str = "", step: str = "", occurrence: int = 0, key: str = "") -> None:
        super().__init__(message)
        self.task, self.step, self.occurrence, self.key = task, step, occurrence, key


class StepFailed(TaskError):
    """Stands for a failure that the task went on from in an earlier run, whose own class is no longer there."""


class EffectNotPerformed(TaskError):
    """Raised by an effect to say that it certainly did not happen, so that it may be tried again."""


class LeaseLost(BaseException):
    """Another worker took this task over, or it was parked, cancelled or ended: stop at once.

    Not an Exception, so that a broad `except Exception` in a step cannot swallow it and go on writing.
    """
