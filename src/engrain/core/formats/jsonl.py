"""The lines of an export: every row of a memory as plain JSON without its scope, and back with every value proved."""

from __future__ import annotations

import math
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from engrain.core.clock import check_time, from_micros, to_micros
from engrain.core.errors import InvalidInput, TooLarge, UnknownKey
from engrain.core.identity import Scope
from engrain.core.model.items import KINDS, MAX_PLACE, TRUST
from engrain.core.model.messages import RESERVED_KEY
from engrain.core.model.rows import Key, Row, RowKind
from engrain.core.model.tasks import ENDED_STATUSES, StepKind, StepStatus
from engrain.core.validation import (
    MAX_JSON,
    MAX_TEXT,
    check_count,
    check_key,
    check_metadata,
    check_name,
    check_share,
    check_sized_text,
    check_text,
)

ROW_TAG = "row"
# In this order. Left out are tombstones and answered requests: hashes under the key of one store, which stays there.
EXPORTED_KINDS: tuple[RowKind, ...] = (
    "item", "cites", "session", "summary", "progress", "episode", "trial", "task", "step", "event",
)  # fmt: skip
MOST = 2**53
MAX_SOURCES = 100_000
MAX_VECTOR = 65_536  # bytes of one row

Check = Callable[[object, str], Any]
Line = dict[str, Any]


def _maybe(check: Check) -> Check:
    return lambda value, what: None if value is None else check(value, what)


def _words(limit: int) -> Check:
    """A text that may be empty."""
    return lambda value, what: check_sized_text(value, what, limit)


def _number(least: int) -> Check:
    return lambda value, what: check_count(value, what, least, MOST)


def _choice(known: Sequence[str]) -> Check:
    def check(value: object, what: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise InvalidInput(f"{what} must be one of {', '.join(known)}, not {value!r:.80}.")
        return value

    return check


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} must be true or false, not {value!r:.80}.")
    return value


def _time(value: object, what: str) -> int:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be an ISO 8601 time, not {value!r:.80}.")
    return to_micros(check_time(value, what))


def _fields(value: object, what: str, known: Mapping[str, Check]) -> Line:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    for name in value:
        if name not in known:
            raise UnknownKey(f"{what} has an unknown field {name!r:.80}. Known: {', '.join(known)}.")
    return {name: check(value.get(name), f"{name} of {what}") for name, check in known.items()}


def _listed(value: object, what: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"{what} must be a list, not {type(value).__name__}.")
    if len(value) > most:
        raise TooLarge(f"{what} has {len(value):,} entries; the limit is {most:,}.")
    return value


def _sources(value: object, what: str) -> list[list[Any]]:
    known = {"kind": _choice(tuple(TRUST)), "name": _maybe(check_key)}
    found = (_fields(one, f"a source of {what}", known) for one in _listed(value, what, MAX_SOURCES))
    return [[one["kind"], one["name"]] for one in found]


def _cites(value: object, what: str) -> list[list[Any]]:
    known = {"source": _number(0), "item": check_key, "start": _maybe(_number(0)), "end": _maybe(_number(0))}
    found: list[list[Any]] = []
    for one in _listed(value, what, MAX_SOURCES):
        cite = _fields(one, "a cite", known)
        start, end = cite["start"], cite["end"]
        if (start is None) != (end is None) or (end is not None and end <= start and (start, end) != (0, 0)):
            raise InvalidInput(f"a cited span needs 0 <= start < end, not {cite['start']!r} and {cite['end']!r}.")
        found.append([cite["source"], cite["item"], cite["start"], cite["end"]])
    if not found:
        raise InvalidInput("a line of cites without a cite.")
    return found


def _vectors(value: object, what: str) -> dict[str, list[str]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    for model, rows in value.items():
        check_key(model, what)
        for row in _listed(rows, what, 1_000):
            _vector(row, what)
    return value


def _vector(row: object, what: str) -> None:
    try:
        raw = b64decode(row, validate=True) if isinstance(row, str) and row.isascii() else b""
    except NotBase64:
        raw = b""
    if not raw or len(raw) % 4 or len(raw) > MAX_VECTOR:
        raise InvalidInput(f"{what} must be float32 numbers in base64.")


def _relation(value: object, what: str) -> Line:
    return _fields(value, what, {"subject": check_key, "relation": check_key, "object": check_key})


def _metadata(value: object, what: str) -> dict[str, Any]:
    found = check_metadata(value)
    if not isinstance(found.get(RESERVED_KEY, {}), dict):
        raise InvalidInput(f"{what}[{RESERVED_KEY!r}] must be an object.")
    return found


def _raw(value: object, what: str) -> Line:
    return _fields(value, what, {"text": _words(MAX_JSON), "expires_at": _time})


ITEM: Mapping[str, Check] = {
    "id": check_key,
    "kind": _choice(KINDS),
    "text": check_text,
    "importance": check_share,
    "recorded_at": _time,
    "valid_from": _time,
    "valid_to": _maybe(_time),
    "occurred_at": _maybe(_time),
    "slot": _maybe(check_key),
    "metadata": _metadata,
    "sources": _sources,
    "trust": check_share,
    "session": _maybe(check_key),
    "place": _maybe(lambda value, what: check_count(value, what, 0, MAX_PLACE)),
    "speaker": _maybe(check_key),
    "role": _maybe(check_key),
    "relation": _maybe(_relation),
    "pinned": _flag,
    "replaced_by": _maybe(check_key),
    "retracted_at": _maybe(_time),
    "expires_at": _maybe(_time),
    "access_count": _number(0),
    "last_accessed": _maybe(_time),
    "vectors": _vectors,
}
EPISODE: Mapping[str, Check] = {
    "id": check_key,
    "session": check_key,
    "kind": check_key,
    "text": _words(MAX_TEXT),
    "importance": check_share,
    "happened_at": _time,
    "expires_at": _maybe(_time),
    "count": _number(1),
    "data": _metadata,
    "item": _maybe(check_key),
    "key": _maybe(check_name),
    "raw": _maybe(_raw),
}
# Nobody runs a task that was loaded: one that had not ended is parked until somebody resumes it.
TASK: Mapping[str, Check] = {
    "task": check_key,
    "goal": _words(MAX_TEXT),
    "version": check_name,
    "status": _choice(("parked", *ENDED_STATUSES)),
    "epoch": _number(0),
    "started_at": _time,
    "ended_at": _maybe(_time),
    "outcome": _words(MAX_TEXT),
    "deadline": _maybe(_time),
    "snapshot": _maybe(_words(MAX_JSON)),
}
STEP: Mapping[str, Check] = {
    "task": check_key,
    "number": _number(1),
    "name": check_key,
    "occurrence": _number(0),
    "kind": _choice(get_args(StepKind)),
    "status": _choice(get_args(StepStatus)),
    "attempt": _number(0),
    "epoch": _number(0),
    "input": check_name,
    "key": check_name,
    "version": check_name,
    "began_at": _time,
    "ended_at": _maybe(_time),
    "result": _maybe(_words(MAX_JSON)),
    "error": _maybe(_words(MAX_TEXT)),
}
FORMS: Mapping[str, Mapping[str, Check]] = {
    "item": ITEM,
    "cites": {"item": check_key, "cites": _cites},
    "session": {"session": check_key, "length": _number(1), "rank": _number(1)},
    "summary": {
        "session": check_key,
        "text": _words(MAX_TEXT),
        "upto": _number(0),
        "version": _number(0),
        "by": check_name,
    },
    "progress": {"session": check_key, "work": check_key, "upto": _number(0)},
    "episode": EPISODE,
    "trial": {
        "procedure": check_key,
        "task": check_name,
        "success": _flag,
        "at": _time,
        "note": _words(MAX_TEXT),
    },
    "task": TASK,
    "step": STEP,
    "event": {"task": check_key, "event": check_key, "payload": _words(MAX_JSON)},
}
# What names a row within its scope and kind, and whether it is a value of the row as well.
_NAMED: Mapping[str, tuple[str, ...]] = {
    "item": ("id",),
    "cites": ("item",),
    "session": ("session",),
    "summary": ("session",),
    "progress": ("session", "work"),
    "episode": ("id",),
    "trial": ("procedure", "task"),
    "task": ("task",),
    "step": ("task", "number"),
    "event": ("task", "event"),
}
_ONLY_NAMED = {"cites", "session", "summary", "progress", "step", "event"}
_TIMES = {
    "recorded_at", "valid_from", "valid_to", "occurred_at", "retracted_at", "expires_at", "last_accessed",
    "happened_at", "at", "started_at", "ended_at", "deadline", "began_at",
}  # fmt: skip


def is_row(line: object) -> bool:
    return isinstance(line, dict) and line.get(ROW_TAG) in FORMS


def row_to_line(row: Row) -> Line:
    """Values that are not there are left out."""
    values = dict(row.values)
    if row.kind == "item":
        values["sources"] = [_named(("kind", "name"), one) for one in values["sources"]]
        values["vectors"] = values["vectors"] or None
    if row.kind == "cites":
        values["cites"] = [_named(("source", "item", "start", "end"), one) for one in values["cites"]]
    if row.kind == "episode" and values["raw"]:
        values["raw"] = {**values["raw"], "expires_at": _iso(values["raw"]["expires_at"])}
    if row.kind == "task" and values["status"] not in ENDED_STATUSES:
        values["status"] = "parked"
    named = dict(zip(_NAMED[row.kind], row.key[-len(_NAMED[row.kind]) :], strict=True))
    if row.kind == "step":
        named["number"] = int(named["number"])  # type: ignore[assignment]
    whole = {**values, **named}
    given = {name: whole[name] for name in FORMS[row.kind] if whole.get(name) is not None}
    return {ROW_TAG: row.kind, **{k: _iso(v) if k in _TIMES else v for k, v in given.items()}}


def line_to_row(line: object, scope: Scope) -> Row:
    """Of an item its hash and traits are still to be set: they are its store's own."""
    kind = line.get(ROW_TAG) if isinstance(line, dict) else None
    if not isinstance(line, dict) or not isinstance(kind, str) or kind not in FORMS:
        raise InvalidInput(f'"{ROW_TAG}" must be one of {", ".join(FORMS)}, not {kind!r:.80}.')
    given = {name: value for name, value in line.items() if name != ROW_TAG}
    values = _fields(given, f"a line of kind {kind!r}", FORMS[kind])
    _PROOFS.get(kind, _nothing)(values)
    names = [str(values[name]) for name in _NAMED[kind]]
    if kind == "step":
        names[1] = f"{values['number']:09d}"
    key: Key = tuple(names) if kind in ("item", "cites") else (scope.id, *names)
    kept = {k: v for k, v in values.items() if kind not in _ONLY_NAMED or k not in _NAMED[kind]}
    if kind == "item":
        kept |= {"hash": "", "traits": 0}
    if kind == "task":
        kept |= {"worker": None, "until": None}
    return Row(kind, key, {**kept, "scope": [scope.tenant, scope.agent, scope.user]})  # type: ignore[arg-type]


def _named(names: Sequence[str], values: Sequence[Any]) -> Line:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _iso(micros: int) -> str:
    return from_micros(micros).isoformat()


def _nothing(_: Line) -> None:
    return None


def _proved_item(values: Line) -> None:
    if values["id"].startswith("#"):
        raise InvalidInput("an id does not begin with #.")
    if (values["session"] is None) != (values["place"] is None):
        raise InvalidInput("session and place belong together.")
    if values["kind"] == "message" and values["session"] is None:
        raise InvalidInput("a message needs its session and place.")
    if values["retracted_at"] is not None and values["replaced_by"] is None:
        raise InvalidInput("an item that was corrected away needs replaced_by.")
    allowed = max((TRUST[kind] for kind, _ in values["sources"]), default=1.0)
    if values["trust"] > allowed and not math.isclose(values["trust"], allowed):
        raise InvalidInput(f"trust {values['trust']} is more than its sources give: {allowed}.")
    if values["kind"] == "procedure" and values["slot"] is not None:
        kept = values["metadata"].get(RESERVED_KEY, {})
        steps = kept.get("steps")
        if not (isinstance(steps, list) and all(isinstance(one, str) for one in steps)):
            raise InvalidInput(f"a procedure needs metadata[{RESERVED_KEY!r}]['steps'], a list of texts.")
        if not isinstance(kept.get("when"), str):
            raise InvalidInput(f"a procedure needs metadata[{RESERVED_KEY!r}]['when'], a text.")


_PROOFS: Mapping[str, Callable[[Line], None]] = {"item": _proved_item}
