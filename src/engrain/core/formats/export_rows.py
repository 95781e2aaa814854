"""Convert the rows of a memory to the JSON lines of an export, and back with every value checked."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from engrain.core.clock import check_time, from_micros, to_micros
from engrain.core.errors import InvalidInput, TooLarge, UnknownKey
from engrain.core.identity import Scope
from engrain.core.model.items import FORGOTTEN, KINDS, MAX_PLACE, RESERVED_KEY, TRUST
from engrain.core.model.records import MAX_BODY, check_record_key, check_space, decode_key, encode_key
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
# In this order. Tombstones and answered requests are left out: they are hashes under the key of one store.
EXPORTED_KINDS: tuple[RowKind, ...] = (
    "item", "cites", "session", "summary", "progress", "episode", "trial", "task", "step", "event", "record",
)  # fmt: skip
MAX_NUMBER = 2**53
MAX_SOURCES = 100_000
MAX_VECTOR_BYTES = 65_536

Check = Callable[[object, str], Any]
Line = dict[str, Any]


def _optional(check: Check) -> Check:
    return lambda value, what: None if value is None else check(value, what)


def _text_up_to(limit: int) -> Check:
    """Check a text that may be empty."""
    return lambda value, what: check_sized_text(value, what, limit)


def _number_from(least: int) -> Check:
    return lambda value, what: check_count(value, what, least, MAX_NUMBER)


def _choice_of(known: Sequence[str]) -> Check:
    def check(value: object, what: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise InvalidInput(f"{what} must be one of {', '.join(known)}, not {value!r:.80}.")
        return value

    return check


def _check_flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} must be true or false, not {value!r:.80}.")
    return value


def _check_time_text(value: object, what: str) -> int:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be an ISO 8601 time, not {value!r:.80}.")
    return to_micros(check_time(value, what))


def _check_fields(value: object, what: str, known: Mapping[str, Check]) -> Line:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    for name in value:
        if name not in known:
            raise UnknownKey(f"{what} has an unknown field {name!r:.80}. Known: {', '.join(known)}.")
    return {name: check(value.get(name), f"{name} of {what}") for name, check in known.items()}


def _check_list(value: object, what: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"{what} must be a list, not {type(value).__name__}.")
    if len(value) > most:
        raise TooLarge(f"{what} has {len(value):,} entries; the limit is {most:,}.")
    return value


def _check_sources(value: object, what: str) -> list[list[Any]]:
    known = {"kind": _choice_of(tuple(TRUST)), "name": _optional(check_key)}
    found = (_check_fields(entry, f"a source of {what}", known) for entry in _check_list(value, what, MAX_SOURCES))
    return [[source["kind"], source["name"]] for source in found]


def _check_cites(value: object, what: str) -> list[list[Any]]:
    known = {
        "source": _number_from(0),
        "item": check_key,
        "start": _optional(_number_from(0)),
        "end": _optional(_number_from(0)),
    }
    found: list[list[Any]] = []
    for entry in _check_list(value, what, MAX_SOURCES):
        cite = _check_fields(entry, "a cite", known)
        start, end = cite["start"], cite["end"]
        if (start is None) != (end is None) or (end is not None and end <= start and (start, end) != (0, 0)):
            raise InvalidInput(f"a cited span needs 0 <= start < end, not {start!r} and {end!r}.")
        found.append([cite["source"], cite["item"], start, end])
    if not found:
        raise InvalidInput("a line of cites needs at least one cite.")
    return found


def _check_vectors(value: object, what: str) -> dict[str, list[str]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object, not {type(value).__name__}.")
    for model, rows in value.items():
        check_key(model, what)
        for row in _check_list(rows, what, 1_000):
            _check_vector(row, what)
    return value


def _check_vector(row: object, what: str) -> None:
    try:
        raw = b64decode(row, validate=True) if isinstance(row, str) and row.isascii() else b""
    except NotBase64:
        raw = b""
    if not raw or len(raw) % 4 or len(raw) > MAX_VECTOR_BYTES:
        raise InvalidInput(f"{what} must be float32 numbers in base64.")


def _check_metadata_field(value: object, what: str) -> dict[str, Any]:
    found = check_metadata(value)
    if not isinstance(found.get(RESERVED_KEY, {}), dict):
        raise InvalidInput(f"{what}[{RESERVED_KEY!r}] must be an object.")
    return found


def _check_event_data(value: object, what: str) -> dict[str, Any]:
    """Check the data of an episode. "why" lists the parts of its importance, each with its name."""
    found = check_metadata(value)
    parts = found.get("why", [])
    if not isinstance(parts, list) or not all(
        isinstance(part, list) and len(part) == 2 and type(part[1]) in (int, float) for part in parts
    ):
        raise InvalidInput(f'{what}["why"] must be a list of names with numbers.')
    return found


def _check_relation(value: object, what: str) -> Line:
    return _check_fields(value, what, dict.fromkeys(("subject", "relation", "object"), check_key))


def _check_raw(value: object, what: str) -> Line:
    return _check_fields(value, what, {"text": _text_up_to(MAX_JSON), "expires_at": _check_time_text})


def _check_body(value: object, what: str) -> str:
    try:
        size = len(b64decode(value, validate=True)) if isinstance(value, str) and value.isascii() else -1
    except NotBase64:
        size = -1
    if not 0 <= size <= MAX_BODY:
        raise InvalidInput(f"{what} must be at most {MAX_BODY:,} bytes in base64.")
    return str(value)


_CHECKS: Mapping[str, Check] = {
    "key": check_key,
    "name": check_name,
    "text": check_text,
    "note": _text_up_to(MAX_TEXT),  # may be empty
    "json": _text_up_to(MAX_JSON),
    "share": check_share,
    "flag": _check_flag,
    "time": _check_time_text,
    "count": _number_from(0),
    "number": _number_from(1),
    "place": lambda value, what: check_count(value, what, 0, MAX_PLACE),
    "metadata": _check_metadata_field,
    "event_data": _check_event_data,
    "sources": _check_sources,
    "cites": _check_cites,
    "vectors": _check_vectors,
    "relation": _check_relation,
    "raw": _check_raw,
    "space": lambda value, what: check_space(value),
    "parts": lambda value, what: encode_key(check_record_key(value, what)),
    "body": _check_body,
    "item_kind": _choice_of(KINDS),
    # A loaded task that had not ended is parked until somebody resumes it.
    "task_status": _choice_of(("parked", *ENDED_STATUSES)),
    "step_kind": _choice_of(get_args(StepKind)),
    "step_status": _choice_of(get_args(StepStatus)),
}
# The fields of each kind in the order of a line, each with its check. A field with "?" may be missing.
# Those before the bar form the key of the row within its scope and kind.
_TABLES: Mapping[str, str] = {
    "item": """id:key | kind:item_kind text:text importance:share recorded_at:time valid_from:time valid_to:time?
        occurred_at:time? slot:key? metadata:metadata sources:sources trust:share session:key? place:place?
        speaker:key? role:key? relation:relation? pinned:flag replaced_by:key? retracted_at:time? expires_at:time?
        access_count:count last_accessed:time? vectors:vectors""",
    "cites": "item:key | cites:cites",
    "session": "session:key | length:number rank:number",
    "summary": "session:key | text:note upto:count version:count by:name",
    "progress": "session:key work:key | upto:count",
    "episode": """id:key | session:key kind:key text:note importance:share happened_at:time expires_at:time?
        count:number data:event_data item:key? key:name? raw:raw?""",
    "trial": "procedure:key task:name | success:flag at:time note:note",
    "task": """task:key | goal:note version:name status:task_status epoch:count started_at:time ended_at:time?
        outcome:note deadline:time? snapshot:json?""",
    "step": """task:key number:number | name:key occurrence:count kind:step_kind status:step_status attempt:count
        epoch:count input:name key:name version:name began_at:time ended_at:time? result:json? error:note?""",
    "event": "task:key event:key | payload:json",
    "record": "space:space key:parts | rank:number written_at:time expires_at:time? body:body",
}


def _read_fields(table: str) -> dict[str, Check]:
    pairs = [entry.split(":") for entry in table.replace("|", "").split()]
    return {name: _optional(_CHECKS[c[:-1]]) if c.endswith("?") else _CHECKS[c] for name, c in pairs}


LINE_FIELDS: Mapping[str, Mapping[str, Check]] = {kind: _read_fields(table) for kind, table in _TABLES.items()}
_KEY_FIELDS = {kind: tuple(_read_fields(table.partition("|")[0])) for kind, table in _TABLES.items()}
_KEYS_NOT_IN_VALUES = {"cites", "session", "summary", "progress", "step", "event", "record"}
_TIME_FIELDS = {name for table in _TABLES.values() for name in re.findall(r"(\w+):time", table)}


def is_row(line: object) -> bool:
    return isinstance(line, dict) and isinstance(kind := line.get(ROW_TAG), str) and kind in LINE_FIELDS


def row_to_line(row: Row) -> Line:
    """Write a row as a line. Missing values are left out."""
    values = dict(row.values)
    if row.kind == "item":
        values["sources"] = [_name_values(("kind", "name"), source) for source in values["sources"]]
        values["vectors"] = values["vectors"] or None
    if row.kind == "cites":
        values["cites"] = [_name_values(("source", "item", "start", "end"), cite) for cite in values["cites"]]
    if row.kind == "episode" and values["raw"]:
        values["raw"] = {**values["raw"], "expires_at": _to_iso(values["raw"]["expires_at"])}
    if row.kind == "task" and values["status"] not in ENDED_STATUSES:
        values["status"] = "parked"
    keys = dict(zip(_KEY_FIELDS[row.kind], row.key[-len(_KEY_FIELDS[row.kind]) :], strict=True))
    if row.kind == "step":
        keys["number"] = int(keys["number"])  # type: ignore[assignment]
    if row.kind == "record":
        keys["key"] = list(decode_key(keys["key"]))  # type: ignore[assignment]
    fields = {**values, **keys}
    filled = {name: fields[name] for name in LINE_FIELDS[row.kind] if fields.get(name) is not None}
    return {ROW_TAG: row.kind, **{k: _to_iso(v) if k in _TIME_FIELDS else v for k, v in filled.items()}}


def line_to_row(line: object, scope: Scope) -> Row:
    """Read a line as a row. The store still has to set an item's hash and traits."""
    kind = line.get(ROW_TAG) if isinstance(line, dict) else None
    if not isinstance(line, dict) or not isinstance(kind, str) or kind not in LINE_FIELDS:
        raise InvalidInput(f'"{ROW_TAG}" must be one of {", ".join(LINE_FIELDS)}, not {kind!r:.80}.')
    named = {name: value for name, value in line.items() if name != ROW_TAG}
    values = _check_fields(named, f"a line of kind {kind!r}", LINE_FIELDS[kind])
    if kind == "item":
        _check_item(values)
    names = [str(values[name]) for name in _KEY_FIELDS[kind]]
    if kind == "step":
        names[1] = f"{values['number']:09d}"
    key: Key = tuple(names) if kind in ("item", "cites") else (scope.id, *names)
    stored = {k: v for k, v in values.items() if kind not in _KEYS_NOT_IN_VALUES or k not in _KEY_FIELDS[kind]}
    if kind == "item":
        stored |= {"hash": "", "traits": 0}
    if kind == "task":
        stored |= {"worker": None, "until": None}
    return Row(kind, key, {**stored, "scope": [scope.tenant, scope.agent, scope.user]})  # type: ignore[arg-type]


def _name_values(names: Sequence[str], values: Sequence[Any]) -> Line:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _to_iso(micros: int) -> str:
    return from_micros(micros).isoformat()


def _check_item(values: Line) -> None:
    if values["id"].startswith("#"):
        raise InvalidInput("an id must not begin with #.")
    if (values["session"] is None) != (values["place"] is None):
        raise InvalidInput("session and place belong together.")
    if values["kind"] == "message" and values["session"] is None:
        raise InvalidInput("a message needs its session and place.")
    if values["retracted_at"] is not None and values["replaced_by"] is None:
        raise InvalidInput("a retracted item needs replaced_by.")
    allowed = max((TRUST[kind] for kind, _ in values["sources"]), default=1.0)
    if values["trust"] > allowed and not math.isclose(values["trust"], allowed):
        raise InvalidInput(f"trust {values['trust']} is higher than its sources allow: {allowed}.")
    if values["kind"] == "procedure" and values["slot"] is not None:
        own = values["metadata"].get(RESERVED_KEY, {})
        steps = own.get("steps")
        if not (isinstance(steps, list) and all(isinstance(step, str) for step in steps)):
            raise InvalidInput(f"a procedure needs metadata[{RESERVED_KEY!r}]['steps'], a list of texts.")
        if not isinstance(own.get("when"), str):
            raise InvalidInput(f"a procedure needs metadata[{RESERVED_KEY!r}]['when'], a text.")
        if own.get("version") is not None:
            check_count(own["version"], "the version of a procedure", 0, MAX_PLACE)


ReportFault = Callable[[Row, str], None]


class RowsByKind(NamedTuple):
    """The rows of an export by kind, each by its key."""

    items: dict[str, Row]
    cites: dict[str, Row]
    sessions: dict[str, Row]
    tasks: dict[str, Row]
    rest: list[Row]


def group_rows(rows: Iterable[Row]) -> RowsByKind:
    parts = RowsByKind({}, {}, {}, {}, [])
    named = {"item": parts.items, "cites": parts.cites, "session": parts.sessions, "task": parts.tasks}
    for row in rows:
        if row.kind in named:
            named[row.kind][row.key[-1]] = row
        else:
            parts.rest.append(row)
    return parts


def check_rows(rows: Sequence[Row], now: int, fault: ReportFault) -> None:
    """Report each row that names a missing row, takes another's place, is part of a cycle or lies in the future.

    A store's time never runs backwards: one row from the future would carry it along.
    """
    parts = group_rows(rows)
    _check_times(rows, now, fault)
    _check_places(parts, fault)
    _check_cited_items(parts, fault)
    for rows_by_id in (parts.cites, parts.items):
        for id in find_cycles(collect_edges(rows_by_id.values())):
            fault(rows_by_id[id], f"{id!r} leads back to itself.")
    _check_steps(parts, fault)
    for row in parts.rest:
        _check_other(row, parts, fault)


def _check_times(rows: Iterable[Row], now: int, fault: ReportFault) -> None:
    for row in rows:
        for name in ("recorded_at", "started_at", "ended_at", "written_at"):
            if row.kind in ("item", "task", "record") and (row.values.get(name) or 0) > now:
                fault(row, f"{name} lies in the future.")


def _check_places(parts: RowsByKind, fault: ReportFault) -> None:
    """Report two current items in one place or slot, and places outside their session."""
    taken: set[tuple[Any, ...]] = set()
    for row in parts.items.values():
        values = row.values
        session = parts.sessions.get(values["session"]) if values["session"] is not None else None
        if values["session"] is not None and (session is None or session.values["length"] <= values["place"]):
            fault(row, f"its place {values['place']} is not inside a session {values['session']!r} of this file.")
        for key in unique_keys(values):
            if key in taken:
                fault(row, f"another line has the same {key[0]}, {key[1]!r}.")
            taken.add(key)


def unique_keys(values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that only one current item may have: its place, its slot, its words."""
    if values["retracted_at"] is not None:
        return
    if values["session"] is not None:
        yield "place", values["session"], values["place"]
    if values["valid_to"] is not None:
        return
    if values["slot"] is not None:
        yield "slot", values["slot"]
    elif values["occurred_at"] is None and values["session"] is None and FORGOTTEN not in values["text"]:
        relation = values["relation"] or {}
        yield "words", values["text"], values["kind"], *relation.values()


def _check_cited_items(parts: RowsByKind, fault: ReportFault) -> None:
    for id, row in parts.cites.items():
        citing = parts.items.get(id)
        if citing is None:
            fault(row, f"the citing item {id!r} is not in this file.")
            continue
        for source, cited, _, end in row.values["cites"]:
            there = parts.items.get(cited)
            if source >= len(citing.values["sources"]):
                fault(row, f"the item {id!r} has no source number {source}.")
            elif there is None:
                fault(row, f"it cites {cited!r}, which is not in this file.")
            elif end is not None and end > len(there.values["text"]):
                fault(row, f"it cites {cited!r} up to character {end}, but that has {len(there.values['text'])}.")


def collect_edges(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Map each item to the items that it cites (rows of cites) or to its successor (rows of items)."""
    edges: dict[str, list[str]] = {}
    for row in rows:
        if row.kind == "cites":
            edges[row.key[0]] = [cite[1] for cite in row.values["cites"]]
        elif row.values["replaced_by"]:
            edges[row.key[0]] = [row.values["replaced_by"]]
    return edges


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the ids from which an edge leads back into its own path."""
    found: list[str] = []
    done: set[str] = set()
    for first in edges:
        path, stack = {first}, [(first, iter(edges[first]))]
        while stack:
            id, following = stack[-1]
            after = next((target for target in following if target in edges and target not in done), None)
            if after is None:
                path.discard(id)
                done.add(id)
                stack.pop()
            elif after in path:
                found.append(id)
            else:
                path.add(after)
                stack.append((after, iter(edges[after])))
    return found


def _check_steps(parts: RowsByKind, fault: ReportFault) -> None:
    count: dict[str, int] = {}
    seen: set[tuple[str, str, int]] = set()
    for row in parts.rest:
        if row.kind != "step":
            continue
        task = row.key[1]
        count[task] = count.get(task, 0) + 1
        place = task, row.values["name"], row.values["occurrence"]
        if task not in parts.tasks:
            fault(row, f"there is no task {task!r} in this file.")
        if int(row.key[2]) != count[task]:
            fault(row, f"step number {int(row.key[2])} of {task!r} should be {count[task]}.")
        if place in seen:
            fault(row, f"the step {row.values['name']!r} of {task!r} appears twice.")
        seen.add(place)


def _check_other(row: Row, parts: RowsByKind, fault: ReportFault) -> None:
    values = row.values
    if row.kind in ("summary", "progress"):
        session = parts.sessions.get(row.key[1])
        if session is None or values["upto"] > session.values["length"]:
            fault(row, f"it reaches beyond the session {row.key[1]!r}.")
    if row.kind == "episode" and values["item"] is not None and values["item"] not in parts.items:
        fault(row, f"its item {values['item']!r} is not in this file.")
    if row.kind == "trial" and row.key[1] not in parts.items:
        fault(row, f"its procedure {row.key[1]!r} is not in this file.")
