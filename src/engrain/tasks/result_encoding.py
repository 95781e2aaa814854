"""Encode results and errors of steps for the journal, and decide how a task stands after an error."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial, reduce
from typing import Any

from engrain.core import errors
from engrain.core.errors import StoreCorrupt
from engrain.core.model.procedures import Trial
from engrain.core.model.tasks import StepRecord, TaskEnd, TaskRecord
from engrain.core.validation import check_json, encode_json
from engrain.ports import Services

ENVELOPE_VERSION = 1
_DECODER = json.JSONDecoder()
_SORTING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True)
_DUMPS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEAD = f'{{"v":{ENVELOPE_VERSION},"value":'
_COUNTS = ("handled_failures", "crashes")  # extras of a task's state
_CONSTANTS: dict[object, str] = {None: "null", True: "true", False: "false"}
_CONSTANT_TYPES = (bool, type(None))
# JSON returns values of these types unchanged.
_EXACT_TYPES = (str, int, float, bool, type(None))


def encode(value: object, what: object) -> str:
    """Encode the value in its envelope. An error about a value that is not plain JSON names it as `what`."""
    return f"{_HEAD}{encode_plain(value, what)}}}"


def encode_plain(value: object, what: object) -> str:
    return _CONSTANTS[value] if type(value) in _CONSTANT_TYPES else encode_json(value, what)


def encode_with_extras(value: str, extras: Mapping[str, Any]) -> str:
    """Put a JSON text into its envelope, with extras beside it that only `decode_envelope` returns."""
    return f"{_HEAD}{value}{''.join(f',{json.dumps(name)}:{_DUMPS(extra)}' for name, extra in extras.items())}}}"


def decode(text: str | None) -> Any:
    return None if text is None else decode_envelope(text)["value"]


def decode_envelope(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        found = _DECODER.decode(text)
        version, _ = found["v"], found["value"]
        if any(type(found.get(name, 0)) is not int for name in _COUNTS) or type(found.get("procedure", "")) is not str:
            raise ValueError("an extra of another type")
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise StoreCorrupt(f"a recorded result cannot be read: {text[:80]!r}.") from exc
    if version != ENVELOPE_VERSION:
        known = f"this engrain knows {ENVELOPE_VERSION}"
        raise StoreCorrupt(f"a recorded result has envelope {version}; {known}. Upgrade engrain.")
    return found  # type: ignore[no-any-return]


def convert_as_replayed(value: Any, text: str) -> Any:
    """Return the value as a replay of its encoded text returns it."""
    return value if type(value) in _EXACT_TYPES else decode(text)


def fingerprint_arguments(args: tuple[object, ...], what: str) -> str:
    """Equal for equal arguments, whatever the order of their keys; "" for none."""
    if not args:
        return ""
    for number, value in enumerate(args):
        check_json(value, f"argument {number} of {what}", "bind it with functools.partial or a lambda")
    return hashlib.blake2b(_SORTING.encode(args).encode(), digest_size=16).hexdigest()


_MAX_ERROR_CHARACTERS = 2_000
_log = logging.getLogger("engrain")


def choose_task_end(error: BaseException) -> TaskEnd:
    """Choose the status of a task whose run was left with this error."""
    parts = _flatten_group(error)
    for part in parts:
        if isinstance(part, errors.StepAmbiguous):
            return TaskEnd("parked", f"the effect {part.step!r} may or may not have happened")
    failures = [part for part in parts if isinstance(part, Exception) and not isinstance(part, errors.TaskWaiting)]
    if failures:
        # Not "failed", which is final: somebody can fix the cause, and then the task continues.
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        return TaskEnd("parked", describe_error(failures[0]) + more)
    waits = [part for part in parts if isinstance(part, errors.TaskWaiting)]
    return TaskEnd("waiting", str(waits[0]) if waits else f"broken off: {describe_error(parts[0])}")


def describe_error(error: BaseException | str) -> str:
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".rstrip(": ")
    # A message may hold characters that cannot be stored: replaced, or an encoding error would hide this one.
    return text[:_MAX_ERROR_CHARACTERS].encode(errors="replace").decode()


def _flatten_group(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [part for inner in error.exceptions for part in _flatten_group(inner)]
    return [error]


def encode_error(error: Exception, number: int) -> str:
    """Encode the error's class, arguments and attributes. `number` counts the failures of a task."""
    kind = type(error)
    more = {name: value for name, value in vars(error).items() if name != "__notes__" and _is_plain(value)}
    args = [value if _is_plain(value) else describe_error(str(value)) for value in error.args]
    return encode({"number": number, "class": [kind.__module__, kind.__qualname__], "args": args, "more": more}, "")


def failure_number(record: StepRecord) -> int:
    """Return the number of a recorded failure; 0 for one that ran in parallel with other steps."""
    return int(_decode_error(record)["number"])


def rebuild_error(record: StepRecord) -> Exception:
    """Rebuild a recorded error in its own class, if that is loaded, so that the same `except` catches it."""
    stored = _decode_error(record)
    module, name = stored["class"]
    kind = reduce(lambda parent, part: getattr(parent, part, None), name.split("."), sys.modules.get(module))
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error: Exception = kind.__new__(kind, *stored["args"])  # __init__ is not called: its effects are unknown
            vars(error).update(stored["more"])
            str(error)
        except Exception:  # noqa: BLE001  # this class cannot be made like that
            pass
        else:
            return error
    return errors.StepFailed(f"{record.kind} {record.name!r} failed in an earlier run: {record.error}")


def _decode_error(record: StepRecord) -> dict[str, Any]:
    """Return what `encode_error` wrote. A result that was not written by it counts as an unknown error."""
    unknown = {"number": 0, "class": ["", ""], "args": [], "more": {}}
    if record.status != "failed" or record.result is None:
        return unknown
    try:
        found = unknown | decode_envelope(record.result)["value"]
        module, name = found["class"]
    except (errors.StoreCorrupt, TypeError, ValueError):
        return unknown
    types = [type(value) for value in (found["number"], module, name, found["args"], found["more"])]
    return found if types == [int, str, str, list, dict] else unknown


def _is_plain(value: object) -> bool:
    try:
        encode(value, "")
    except errors.InvalidInput:
        return False
    return True


def expire_tasks(services: Services) -> list[TaskRecord]:
    """Set tasks past their max_age to "expired", and count a failure for the procedure of each."""
    assert services.journal is not None
    expired = services.journal.expire(services.clock())
    for task in expired:
        record_procedure_failure(services, task, task.outcome or "it was not done within its max_age")
    return expired


def record_procedure_failure(services: Services, task: TaskRecord, why: str) -> None:
    """Count a failure for the task's procedure. Only the first outcome of a task counts."""
    procedure = decode_envelope(task.snapshot).get("procedure")
    if not isinstance(procedure, str) or services.outcomes is None:
        return
    report = partial(_log.warning, "the failure of task %r was not counted for its procedure: %s", task.task)
    # NotFound: the procedure was forgotten meanwhile, with its counts.
    with errors.tolerate(errors.EngrainError, report=report), suppress(errors.NotFound):
        services.outcomes.count(task.scope, Trial(procedure, task.task, False, services.clock(), why))
