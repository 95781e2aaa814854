"""Write all that a memory holds as Markdown, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from engrain.core.clock import from_micros
from engrain.core.exporting import EXPORTED, line_of
from engrain.core.moving import Row
from engrain.core.scope import Scope
from engrain.lifecycle.exporting import NAMES, Exported, rows_of
from engrain.ports import Kit

Values = dict[str, Any]
CITED = 500  # characters of what an item rests on; the whole stands in its session


def tell(kit: Kit, scope: Scope, out: BinaryIO, done: Callable[[int], None]) -> Exported:
    rows: dict[str, list[Row]] = {kind: [] for kind in EXPORTED}
    for row in rows_of(kit, scope):
        rows[row.kind].append(row)
        done(1)
    counts = Counter({kind: len(some) for kind, some in rows.items() if some})
    page = _Page(rows)
    listed = ", ".join(f"{counts[kind]:,} {name}" for kind, name in NAMES.items() if counts[kind])
    parts = [
        ["# What this memory holds", "", f"Of {_plain(str(scope))}: {listed or 'nothing'}. Times are UTC."],
        *page.sections(),
    ]
    for lines in parts:
        out.write(("\n".join(lines) + "\n\n").encode())
    return Exported(counts)


class _Page:
    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self._rows = rows
        self._items: dict[str, Values] = {row.key[0]: dict(row.values) for row in rows["item"]}
        self._cites = {row.key[0]: [one[1] for one in row.values["cites"]] for row in rows["cites"]}

    def sections(self) -> Iterator[list[str]]:
        items = list(self._items.values())
        lasting = [one for one in items if one["session"] is None and one["kind"] not in ("procedure", "summary")]
        holds = [one for one in lasting if one["valid_to"] is None and one["retracted_at"] is None]
        yield from self._section("What is known", (self._item(one) for one in holds))
        yield from self._section("What held before", (self._item(one) for one in lasting if one not in holds))
        yield from self._section(
            "Ways of doing things", map(self._procedure, (o for o in items if o["kind"] == "procedure"))
        )
        yield from self._section(
            "Summaries", map(self._item, (o for o in items if o["kind"] == "summary" and not o["session"]))
        )
        yield from self._sessions(items)
        yield from self._section("What happened", map(self._episode, self._rows["episode"]))
        yield from self._section("Tasks", map(self._task, self._rows["task"]))

    def _section(self, title: str, parts: Iterator[list[str]]) -> Iterator[list[str]]:
        lines = [line for part in parts for line in part]
        if lines:
            yield [f"## {title}", "", *lines]

    def _sessions(self, items: Sequence[Values]) -> Iterator[list[str]]:
        said: dict[str, list[Values]] = {}
        for one in items:
            if one["session"] is not None:
                said.setdefault(one["session"], []).append(one)
        sums = {row.key[1]: row.values["text"] for row in self._rows["summary"] if row.values["text"]}
        for row in sorted(self._rows["session"], key=lambda row: row.values["rank"]):
            session = row.key[1]
            lines = [f"## Session {_plain(session)}", ""]
            if session in sums:
                lines += ["In short:", *_quoted(sums[session]), ""]
            for one in sorted(said.get(session, ()), key=lambda one: (one["place"], one["recorded_at"])):
                who = one["speaker"] or one["role"] or one["kind"]
                when = one["occurred_at"] or one["recorded_at"]
                fate = "; corrected later" if one["retracted_at"] is not None else ""
                lines += [f"**{_plain(who)}**, {_time(when)}{fate}:", *_quoted(one["text"]), ""]
            yield lines

    def _item(self, one: Values) -> list[str]:
        """A text, when it held, whose word it is, what took its place."""
        told = [f"since {_time(one['valid_from'])}"]
        if one["retracted_at"] is not None:
            told.append(f"corrected {_time(one['retracted_at'])}: it was never so")
        elif one["valid_to"] is not None:
            told.append(f"until {_time(one['valid_to'])}")
        if one["occurred_at"] is not None:
            told.append(f"of {_time(one['occurred_at'])}")
        if one["slot"]:
            told.append(f"slot {_plain(one['slot'])}")
        names = [f"{kind} {_plain(name)}" if name else kind for kind, name in one["sources"]]
        told.append(f"from {', '.join(names) or 'nobody'}")
        told.append(f"importance {one['importance']:g}")
        if one["pinned"]:
            told.append("pinned")
        lines = [*_quoted(one["text"]), "", f"{'; '.join(told)}; id {_plain(one['id'])}"]
        after = self._items.get(one["replaced_by"] or "")
        if after:
            lines += ["", "Then:", *_quoted(after["text"])]
        for cited in self._cites.get(one["id"], ()) if one["kind"] != "summary" else ():
            lines += ["", "It rests on:", *_quoted(self._items[cited]["text"][:CITED])] if cited in self._items else []
        return [*lines, ""]

    def _procedure(self, one: Values) -> list[str]:
        trials = [row.values for row in self._rows["trial"] if row.values["procedure"] == one["id"]]
        lines = self._item(one)
        for trial in trials:
            end = "worked" if trial["success"] else "failed"
            note = f": {_plain(trial['note'])}" if trial["note"] else ""
            lines.append(f"- {_time(trial['at'])}, task {_plain(trial['task'])}: {end}{note}")
        return [*lines, ""]

    def _episode(self, row: Row) -> list[str]:
        one = row.values
        item = self._items.get(one["item"] or "")
        text = one["text"] or (item["text"] if item else "")
        times = f", {one['count']} times" if one["count"] > 1 else ""
        ends = f"; until {_time(one['expires_at'])}" if one["expires_at"] is not None else ""
        head = f"**{_plain(one['kind'])}** in {_plain(one['session'])}, {_time(one['happened_at'])}{times}{ends}:"
        whole = ["", "The whole of it:", *_quoted(one["raw"]["text"])] if one["raw"] else []
        return [head, *_quoted(text), *whole, ""]

    def _task(self, row: Row) -> list[str]:
        one = line_of(row)
        ended = f", ended {one['ended_at']}" if "ended_at" in one else ""
        lines = [f"### {_plain(row.key[1])}", "", f"{one['status']}, begun {one['started_at']}{ended}."]
        lines += ["Goal:", *_quoted(one["goal"])] if one["goal"] else []
        lines += ["Outcome:", *_quoted(one["outcome"])] if one["outcome"] else []
        lines += ["Kept with it:", *_quoted(one["snapshot"])] if "snapshot" in one else []
        for step in (step for step in self._rows["step"] if step.key[1] == row.key[1]):
            values = step.values
            lines.append(
                f"- {_plain(values['name'])} ({values['kind']}): {values['status']}, {_time(values['began_at'])}"
            )
            lines += _quoted(values["result"]) if values["result"] is not None else []
            lines += _quoted(values["error"]) if values["error"] else []
        return [*lines, ""]


def _quoted(text: str) -> list[str]:
    """Stored text is data: no line of it begins a heading, ends the quote, or has a picture fetched."""
    return [f"> {_safe(line)}".rstrip().replace("<", "\\<").replace("[", "\\[") for line in text.splitlines() or [""]]


def _plain(text: str) -> str:
    """In one line, without a mark that Markdown would read."""
    return "".join(f"\\{one}" if one in "\\`*_{}[]<>#|" else one for one in " ".join(_safe(text).split()))


def _safe(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\t" else f"\\u{ord(one):04x}" for one in text)


def _time(micros: int) -> str:
    when: datetime = from_micros(micros)
    return when.strftime("%Y-%m-%d %H:%M")
