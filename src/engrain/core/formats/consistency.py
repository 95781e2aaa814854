"""Find the rows of an export that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engrain.core.model.items import FORGOTTEN
from engrain.core.model.rows import Row

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
    _check_cites(parts, fault)
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


def _check_cites(parts: RowsByKind, fault: ReportFault) -> None:
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
