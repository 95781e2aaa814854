"""Export a memory as a Markdown page for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO

import orjson

from engrain.core.clock import from_micros
from engrain.core.formats.export_rows import EXPORTED_KINDS
from engrain.core.identity import Scope
from engrain.core.model.items import FOUND_BY, RESERVED_KEY, SESSION_SLOT_PREFIX
from engrain.core.model.rows import Row
from engrain.core.text.invisible import escape_invisible
from engrain.core.validation import count_noun
from engrain.ports import Services
from engrain.ports.storage import PAGE_SIZE
from engrain.transfer.export import ExportResult, iterate_exported, require_movable

Values = dict[str, Any]
MAX_CITED_CHARACTERS = 500  # of a cited text; its conversation has the whole
SOURCE_WORDS = {
    "user": "the user", "agent": "the agent", "tool": "the tool", "import": "an import from", "web": "the web page",
    "document": "the document",
}  # fmt: skip
NOBODY = "nobody in particular (no user)"
# The start of a tag, a link or a picture, with the backslashes before it.
_ACTIVE = re.compile(r"(\\*)([<\[])")
# Technical fields of a task's saved working memory: format and limits.
SNAPSHOT_FIELDS = {"engrain", "v", "max_tokens", "max_items", "summarize_at", "keep_recent", "task_id"}


def export_markdown(services: Services, scope: Scope, out: BinaryIO, done: Callable[[int], None]) -> ExportResult:
    rows = require_movable(services).on_snapshot(lambda: _read_rows(services, scope, done))
    named = {"tenant": scope.tenant, "agent": scope.agent, "user": scope.user}
    whose = ", ".join(f"{name} {_escape_line(value)}" for name, value in named.items() if value)
    parts = [_render_opening(whose or NOBODY, services.clock(), rows), *_PageWriter(rows).sections()]
    for lines in parts:
        out.write(("\n".join(lines).rstrip() + "\n\n").encode())
    return ExportResult(Counter({kind: len(some) for kind, some in rows.items() if some}))


def _read_rows(services: Services, scope: Scope, done: Callable[[int], None]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {kind: [] for kind in EXPORTED_KINDS}
    unreported = 0
    for row in iterate_exported(services, scope):
        # People cannot read bodies of records.
        rows[row.kind].append(replace(row, values={**row.values, "body": ""}) if row.kind == "record" else row)
        unreported += 1
        if unreported == PAGE_SIZE:  # by pages: a `done` that writes to the memory would otherwise never end
            done(unreported)
            unreported = 0
    done(unreported)
    return rows


def _render_opening(whose: str, now: datetime, rows: dict[str, list[Row]]) -> list[str]:
    messages = sum(row.values["session"] is not None for row in rows["item"])
    counts = (
        (len(rows["item"]) - messages, "piece of knowledge", "pieces of knowledge"),
        (messages, "message", None),
        (len(rows["session"]), "conversation", None),
        (len(rows["task"]), "task", None),
        (len(rows["record"]), "record of another program", "records of other programs"),
    )
    counted = ", ".join(count_noun(*count) for count in counts if count[0]) or "nothing"
    about = (
        f"This is a copy of everything in the memory of {whose}, made on {now:%Y-%m-%d %H:%M}: {counted}. "
        "Times are in UTC. Quoted text is word for word. The source of an entry follows after "
        '"told by". "Importance", from 0 to 1, is how much the program thinks that an entry matters: the least '
        "important entries are removed first."
    )
    return ["# What this memory holds", "", about]


class _PageWriter:
    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self._rows = rows
        self._items: dict[str, Values] = {row.key[0]: dict(row.values) for row in rows["item"]}
        self._cites = {row.key[0]: [cite[1] for cite in row.values["cites"]] for row in rows["cites"]}
        self._trials, self._steps = _group_by_owner(rows["trial"]), _group_by_owner(rows["step"])

    def sections(self) -> Iterator[list[str]]:
        items = [item for item in self._items.values() if item["session"] is None]
        lasting = [item for item in items if item["kind"] not in ("procedure", "summary")]
        yield from self._section("What is known", (self._item(item) for item in lasting if _is_current(item)))
        yield from self._section("What held before", (self._item(item) for item in lasting if not _is_current(item)))
        ways = (item for item in items if item["kind"] == "procedure")
        yield from self._section("Ways of doing things", map(self._procedure, ways))
        sums = (item for item in items if item["kind"] == "summary")
        yield from self._section("Summaries of conversations", map(self._item, sums))
        yield from self._sessions()
        # The episode of a message is that message, which its conversation shows.
        episodes = self._rows["episode"]
        shown = (row for row in episodes if row.values["text"] or row.values["raw"] or not self._is_of_message(row))
        yield from self._section("What happened", map(self._episode, shown))
        yield from self._section("Tasks", map(self._task, self._rows["task"]))
        yield from self._section("Events of tasks", map(self._event, self._rows["event"]))

    def _is_of_message(self, row: Row) -> bool:
        item = self._items.get(row.values["item"] or "")
        return item is not None and item["session"] is not None

    def _section(self, title: str, parts: Iterable[list[str]]) -> Iterator[list[str]]:
        lines = [line for part in parts for line in part]
        if lines:
            yield [f"## {title}", "", *lines]

    def _sessions(self) -> Iterator[list[str]]:
        messages: dict[str, list[Values]] = {}
        for item in self._items.values():
            if item["session"] is not None:
                messages.setdefault(item["session"], []).append(item)
        sums = {row.key[1]: row.values["text"] for row in self._rows["summary"] if row.values["text"]}
        for row in sorted(self._rows["session"], key=lambda row: row.values["rank"]):
            session = row.key[1]
            lines = [f"## Conversation {_escape_line(session)}", ""]
            if session in sums:
                lines += ["In short:", "", *_quote(sums[session]), ""]
            for message in sorted(
                messages.get(session, ()), key=lambda message: (message["place"], message["recorded_at"])
            ):
                lines += self._message(message)
            yield lines

    def _message(self, message: Values) -> list[str]:
        who = message["speaker"] or message["role"] or message["kind"]
        fate = ", corrected later" if message["retracted_at"] is not None else ""
        when = _format_time(message["occurred_at"] or message["recorded_at"])
        head = f"**{_escape_line(who)}**, {when}{fate}:"
        return [head, "", *_quote(message["text"]), "", *_render_metadata(message["metadata"])]

    def _item(self, item: Values) -> list[str]:
        """Render an item's text, its validity, its sources and its successor."""
        details = [_escape_line(_describe_slot(item["slot"]))] if item["slot"] else []
        details += [_describe_validity(item), _describe_sources(item["sources"])]
        details.append(f"importance {item['importance']:g} of 1")
        if item["pinned"]:
            details.append("pinned")
        if item["expires_at"] is not None:
            details.append(f"kept until {_format_time(item['expires_at'])}")
        lines = [*_quote(_text_of(item)), "", f"{'; '.join(details)}.", ""]
        # A summary's metadata is engrain's own.
        lines += _render_metadata(item["metadata"]) if item["kind"] != "summary" else []
        after = self._items.get(item["replaced_by"] or "")
        if after:
            lines += ["Then:", "", *_quote(_text_of(after)), ""]
        cited = (self._items.get(id) for id in self._cites.get(item["id"], ()) if item["kind"] != "summary")
        for text in (_text_of(there) for there in cited if there and there["text"] != item["text"]):
            lines += ["Because of:", "", *_quote(_shorten(text, MAX_CITED_CHARACTERS)), ""]
        return lines

    def _procedure(self, item: Values) -> list[str]:
        lines = self._item(item)
        for trial in self._trials.get(item["id"], ()):
            end = "it worked" if trial["success"] else "it failed"
            note = f": {_escape_line(trial['note'])}" if trial["note"] else ""
            lines.append(f"- {_format_time(trial['at'])}, in the task {_escape_line(trial['task'])}, {end}{note}")
        return [*lines, ""]

    def _episode(self, row: Row) -> list[str]:
        episode = row.values
        item = self._items.get(episode["item"] or "")
        # A message's whole words are in its conversation.
        text = episode["text"] or (_shorten(item["text"], MAX_CITED_CHARACTERS) if item else "")
        times = f", {episode['count']} times" if episode["count"] > 1 else ""
        ends = f", kept until {_format_time(episode['expires_at'])}" if episode["expires_at"] is not None else ""
        place = f"**{_escape_line(episode['kind'])}** in {_escape_line(episode['session'])}"
        head = f"{place}, {_format_time(episode['happened_at'])}{times}{ends}:"
        whole = ["The whole of it:", "", *_quote(episode["raw"]["text"]), ""] if episode["raw"] else []
        return [head, "", *_quote(text), "", *whole]

    def _task(self, row: Row) -> list[str]:
        task = row.values
        ended = f", ended {_format_time(task['ended_at'])}" if task["ended_at"] is not None else ""
        status = f"{task['status'].capitalize()}; begun {_format_time(task['started_at'])}{ended}."
        lines = [f"### {_escape_line(row.key[1])}", "", status]
        lines += ["", "Goal:", "", *_quote(task["goal"])] if task["goal"] else []
        lines += ["", "Outcome:", "", *_quote(task["outcome"])] if task["outcome"] else []
        lines += ["", "Working memory:", "", *_quote(_render_recorded(task["snapshot"]))] if task["snapshot"] else []
        for step in self._steps.get(row.key[1], ()):
            lines += ["", f"Step {_escape_line(step['name'])}, {_format_time(step['began_at'])}, {step['status']}:"]
            lines += ["", *_quote(_render_recorded(step["result"]))] if step["result"] is not None else []
            lines += ["", *_quote(step["error"])] if step["error"] else []
        return [*lines, ""]

    def _event(self, row: Row) -> list[str]:
        _, task, event = row.key
        head = f"**{_escape_line(event)}** for the task {_escape_line(task)}:"
        return [head, "", *_quote(_render_recorded(row.values["payload"])), ""]


def _group_by_owner(rows: Iterable[Row]) -> dict[str, list[Mapping[str, Any]]]:
    """Group rows by their procedure or task."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row.key[1], []).append(row.values)
    return found


def _text_of(item: Values) -> str:
    """Return the stored text; a relation's name is written in words."""
    text, parts = str(item["text"]), item["relation"]
    if parts is None or text != f"{parts['subject']} {parts['relation']} {parts['object']}":
        return text
    return f"{parts['subject']} {parts['relation'].replace('_', ' ')} {parts['object']}"


def _describe_slot(slot: str) -> str:
    if slot.startswith(SESSION_SLOT_PREFIX):
        return f"summary of the session {slot.removeprefix(SESSION_SLOT_PREFIX)}"
    return f"about: {re.sub(r'[._:]+', ' ', slot.removeprefix('user.')).strip() or slot}"


def _is_current(item: Values) -> bool:
    return item["valid_to"] is None and item["retracted_at"] is None


def _describe_validity(item: Values) -> str:
    if item["retracted_at"] is not None:
        return (
            f"from {_format_time(item['valid_from'])}, corrected {_format_time(item['retracted_at'])}: it was never so"
        )
    until = f" until {_format_time(item['valid_to'])}" if item["valid_to"] is not None else ""
    return f"{'from' if until else 'since'} {_format_time(item['valid_from'])}{until}"


def _describe_sources(sources: Sequence[Sequence[Any]]) -> str:
    names = [
        f"{SOURCE_WORDS.get(kind, kind)} {_escape_line(name)}" if name else SOURCE_WORDS.get(kind, kind)
        for kind, name in sources
    ]
    return f"told by {', '.join(dict.fromkeys(names))}" if names else "source unknown"


def _render_metadata(metadata: Mapping[str, Any]) -> list[str]:
    """Render metadata that a program or an import added, but not engrain's own."""
    lines = [
        f"- {_escape_line(name)}: {_escape_line(_render_inline(value))}"
        for name, value in metadata.items()
        if name != RESERVED_KEY and (name, value) not in FOUND_BY
    ]
    return [*lines, ""] if lines else []


def _render_recorded(recorded: str) -> str:
    """Render a recorded JSON value without its wrapping and its empty parts."""
    try:
        value = orjson.loads(recorded)
    except orjson.JSONDecodeError:
        return recorded
    inner = {k: v for k, v in value.items() if k != "v"} if isinstance(value, dict) and "v" in value else value
    is_wrapped = isinstance(inner, dict) and inner.keys() == {"value"}
    return _render_value(inner["value"] if is_wrapped else _drop_empty(inner))


def _drop_empty(value: Any) -> Any:
    if isinstance(value, dict):
        filled = {name: _drop_empty(part) for name, part in value.items() if name not in SNAPSHOT_FIELDS}
        return {name: part for name, part in filled.items() if part not in (None, "", [], {})}
    return [_drop_empty(part) for part in value] if isinstance(value, list) else value


def _render_value(value: Any) -> str:
    """Render a value in words: a line for each name and each list entry."""
    if isinstance(value, dict):
        return "\n".join(f"{name}:{_indent(_render_value(part))}" for name, part in value.items())
    if isinstance(value, list):
        return "\n".join(f"-{_indent(_render_value(part))}" for part in value)
    if value is None:
        return "nothing"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _render_inline(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_render_inline(part)}" for name, part in value.items())
    return ", ".join(map(_render_inline, value)) if isinstance(value, list) else _render_value(value)


def _indent(rendered: str) -> str:
    lines = rendered.splitlines() or [""]
    return f" {rendered}" if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _quote(text: str) -> list[str]:
    """Quote stored text so that no line of it starts a heading, ends the quote or fetches a picture."""
    return [f"> {_ACTIVE.sub(_escape_mark, escape_invisible(line))}".rstrip() for line in text.splitlines() or [""]]


def _escape_mark(found: re.Match[str]) -> str:
    """Escape a mark. Backslashes before it are doubled, or they would cancel ours."""
    return f"{found[1] * 2}\\{found[2]}"


def _escape_line(text: str) -> str:
    """Return the text in one line, with Markdown's marks escaped."""
    return "".join(
        f"\\{letter}" if letter in "\\`*_{}[]<>#|" else letter for letter in " ".join(escape_invisible(text).split())
    )


def _format_time(micros: int) -> str:
    return f"{from_micros(micros):%Y-%m-%d %H:%M}"
