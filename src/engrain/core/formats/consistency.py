"""Tell where the rows of an export do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engrain.core.model.items import FORGOTTEN
from engrain.core.model.rows import Row

ReportFault = Callable[[Row, str], None]


class RowsByKind(NamedTuple):
    """The rows by kind, each by its key."""

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
    """`fault` is told of each row that names something which is not there, stands where another stands, goes round in
    a circle, or was written in the future: a store's time never runs back, so that one such row would drag it along."""
    parts = group_rows(rows)
    _times(rows, now, fault)
    _places(parts, fault)
    _cited(parts, fault)
    for of in (parts.cites, parts.items):
        for id in find_cycles(collect_edges(of.values())):
            fault(of[id], f"{id!r} leads back to itself.")
    _steps(parts, fault)
    for row in parts.rest:
        _rest(row, parts, fault)


def _times(rows: Iterable[Row], now: int, fault: ReportFault) -> None:
    for row in rows:
        for name in ("recorded_at", "started_at", "ended_at"):
            if row.kind in ("item", "task") and (row.values.get(name) or 0) > now:
                fault(row, f"{name} lies in the future.")


def _places(parts: RowsByKind, fault: ReportFault) -> None:
    """One standing item at a place, one open item in a slot, and each place inside its session."""
    taken: set[tuple[Any, ...]] = set()
    for row in parts.items.values():
        values = row.values
        session = parts.sessions.get(values["session"]) if values["session"] is not None else None
        if values["session"] is not None and (session is None or session.values["length"] <= values["place"]):
            fault(row, f"its place {values['place']} is not inside a session {values['session']!r} of this file.")
        for held in unique_keys(values):
            if held in taken:
                fault(row, f"another line stands in the same {held[0]}, {held[1]!r}.")
            taken.add(held)


def unique_keys(values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """What an item has for itself alone as long as it stands."""
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


def _cited(parts: RowsByKind, fault: ReportFault) -> None:
    for id, row in parts.cites.items():
        citing = parts.items.get(id)
        if citing is None:
            fault(row, f"there is no item {id!r} in this file that could cite.")
            continue
        for source, cited, _, end in row.values["cites"]:
            there = parts.items.get(cited)
            if source >= len(citing.values["sources"]):
                fault(row, f"the item {id!r} has no source number {source}.")
            elif there is None:
                fault(row, f"it cites {cited!r}, which is not in this file.")
            elif end is not None and end > len(there.values["text"]):
                fault(row, f"it cites {cited!r} up to character {end}, and that has {len(there.values['text'])}.")


def collect_edges(rows: Iterable[Row]) -> dict[str, list[str]]:
    """What each item cites, from rows of cites; what took its place, from rows of items."""
    edges: dict[str, list[str]] = {}
    for row in rows:
        if row.kind == "cites":
            edges[row.key[0]] = [one[1] for one in row.values["cites"]]
        elif row.values["replaced_by"]:
            edges[row.key[0]] = [row.values["replaced_by"]]
    return edges


def find_cycles(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """From which an edge leads back to where it came from."""
    found: list[str] = []
    done: set[str] = set()
    for first in edges:
        path, stack = {first}, [(first, iter(edges[first]))]
        while stack:
            id, following = stack[-1]
            after = next((one for one in following if one in edges and one not in done), None)
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


def _steps(parts: RowsByKind, fault: ReportFault) -> None:
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
            fault(row, f"step number {int(row.key[2])} of {task!r} comes where {count[task]} should.")
        if place in seen:
            fault(row, f"the step {row.values['name']!r} of {task!r} is there twice.")
        seen.add(place)


def _rest(row: Row, parts: RowsByKind, fault: ReportFault) -> None:
    values = row.values
    if row.kind in ("summary", "progress"):
        session = parts.sessions.get(row.key[1])
        if session is None or values["upto"] > session.values["length"]:
            fault(row, f"it goes beyond the session {row.key[1]!r}.")
    if row.kind == "episode" and values["item"] is not None and values["item"] not in parts.items:
        fault(row, f"its item {values['item']!r} is not in this file.")
    if row.kind == "trial" and row.key[1] not in parts.items:
        fault(row, f"its procedure {row.key[1]!r} is not in this file.")
