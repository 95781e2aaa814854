"""What a journal keeps of a failure, so that one that the program went on from can be raised again."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

from engrain.core.errors import InvalidInput, StepFailed, StoreCorrupt
from engrain.core.journal import StepRecord
from engrain.tasks.ending import shown
from engrain.tasks.envelope import encode, opened


def noted(error: Exception, number: int) -> str:
    """By its class and what it was made with; `number` counts the failures of a task."""
    kind = type(error)
    more = {name: value for name, value in vars(error).items() if name != "__notes__" and _is_plain(value)}
    args = [one if _is_plain(one) else shown(str(one)) for one in error.args]
    return encode({"number": number, "class": [kind.__module__, kind.__qualname__], "args": args, "more": more}, "")


def number_of(record: StepRecord) -> int:
    """0 for one that may have failed beside others."""
    return int(_kept(record).get("number", 0))


def again(record: StepRecord) -> Exception:
    """Of the class it had at first, if that is still there, so that what caught it then catches it now."""
    kept = _kept(record)
    module, name = kept["class"]
    kind = reduce(lambda there, part: getattr(there, part, None), name.split("."), sys.modules.get(module))
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            error: Exception = kind.__new__(kind, *kept["args"])  # not called: what it then does with these is unknown
            vars(error).update(kept["more"])
            str(error)
        except Exception:  # noqa: BLE001  # of a class that is not made like that
            pass
        else:
            return error
    return StepFailed(f"{record.kind} {record.name!r} failed in an earlier run: {record.error}")


def _kept(record: StepRecord) -> dict[str, Any]:
    if record.status != "failed" or record.result is None:
        return {}
    try:
        return dict(opened(record.result)["value"])
    except (StoreCorrupt, TypeError, ValueError):
        return {}


def _is_plain(value: object) -> bool:
    try:
        encode(value, "")
    except InvalidInput:
        return False
    return True
