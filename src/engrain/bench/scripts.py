"""Read a script for `engrain evaluate`: sessions, messages and questions with the expected answers, as JSON Lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from engrain.core.clock import check_time
from engrain.core.errors import InvalidInput, UnknownKey
from engrain.core.formats.strict_json import parse_strict
from engrain.ports.plain_files import read_plain_text

MAX_LINE_BYTES = 1_000_000
MAX_SCRIPT_BYTES = 256_000_000
ROLES = ("user", "assistant", "system", "tool")


@dataclass(frozen=True, slots=True)
class Begin:
    """A new, empty memory."""

    id: str


@dataclass(frozen=True, slots=True)
class Expected:
    """A statement that must become a fact. `text` is a part of its message, `replaces` the id of the older one."""

    id: str
    text: str
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptMessage:
    """A message, the facts that must come from it, those that may, and the ids of facts that it asks to forget."""

    id: str
    session: str
    role: str
    text: str
    at: datetime | None
    keeps: tuple[Expected, ...]
    may: tuple[str, ...]
    forgets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScriptQuestion:
    """A question: one of `answers` must be in the prompt, none of `stale` before it, all of `always` beside it.

    `empty`: the question belongs to no memory, and nothing should be found.
    """

    id: str
    text: str
    kind: str
    answers: tuple[str, ...]
    stale: tuple[str, ...]
    always: tuple[str, ...]
    empty: bool


@dataclass(frozen=True, slots=True)
class Lines:
    """Texts that must, and must not, be in the user's profile (`where` is "profile") or among the current facts."""

    id: str
    where: str
    true: tuple[str, ...]
    false: tuple[str, ...]


Step = Begin | ScriptMessage | ScriptQuestion | Lines


def read_script(path: Path) -> list[Step]:
    """Read and check a script. InvalidInput names the line."""
    steps: list[Step] = []
    known: set[str] = set()  # ids of what was said so far, in the memory that is played
    for number, line in enumerate(read_plain_text(path, MAX_SCRIPT_BYTES).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path.name}, line {number:,}"
        if len(line) > MAX_LINE_BYTES:
            raise InvalidInput(f"{where}: a record has at most {MAX_LINE_BYTES:,} characters.")
        try:
            record = parse_strict(line.encode())
        except orjson.JSONDecodeError as exc:
            raise InvalidInput(f"{where} is not JSON: {exc}.") from exc
        if not isinstance(record, dict):
            raise InvalidInput(f'{where}: a record is an object, such as {{"type": "message", …}}.')
        for step in _parse_record(_Record(record, where), len(steps)):
            _check_references(step, known, where)
            steps.append(step)
    if not any(isinstance(step, ScriptMessage) for step in steps):
        raise InvalidInput(f"{path} has no message. See: engrain evaluate --help.")
    return steps


def _check_references(step: Step, known: set[str], where: str) -> None:
    """Refuse a reference to something that nobody said before: a misspelt id would not be scored."""
    if isinstance(step, Begin):
        known.clear()
    if not isinstance(step, ScriptMessage):
        return
    for one in step.keeps:
        if one.replaces is not None and one.replaces not in known:
            raise InvalidInput(f"{where}: {one.id!r} replaces {one.replaces!r}, which no message before keeps.")
        known.add(one.id)
    for id in step.forgets:
        if id not in known:
            raise InvalidInput(f"{where}: the message forgets {id!r}, which no message before keeps.")


class _Record:
    """A record of the file, with checked access to its fields."""

    def __init__(self, fields: Mapping[str, Any], where: str) -> None:
        self._fields = fields
        self.where = where

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if value is None:
            raise InvalidInput(f"{self.where}: {name!r} is missing. It must be a text.")
        if not isinstance(value, str):
            raise InvalidInput(f"{self.where}: {name!r} must be a text, not {value!r:.80}.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise InvalidInput(f"{self.where}: {name!r} must be a list of texts, not {value!r:.80}.")
        return tuple(value)

    def records(self, name: str) -> Iterator[_Record]:
        value = self._fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise InvalidInput(f"{self.where}: {name!r} must be a list of objects.")
        return (_Record(one, self.where) for one in value)

    def time(self, name: str) -> datetime | None:
        value = self._fields.get(name)
        return None if value is None else check_time(value, f"{self.where}: {name!r}")

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def optional(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)


def _parse_record(record: _Record, number: int) -> list[Step]:
    kind = record.text("type", "")
    if kind not in _PARSERS:
        known = ", ".join(_PARSERS)
        raise UnknownKey(f"{record.where}: unknown type {kind!r}. Known: {known}.")
    parse = _PARSERS[kind]
    return [parse(record, record.text("id", f"{number}"))] if parse else []


def _parse_message(record: _Record, id: str) -> ScriptMessage:
    role, text = record.text("role", "user"), record.text("text")
    if role not in ROLES:
        raise InvalidInput(f"{record.where}: role must be one of {', '.join(ROLES)}, not {role!r}.")
    keeps = tuple(
        Expected(one.text("id", f"{id}.{number}"), one.text("text"), one.optional("replaces"))
        for number, one in enumerate(record.records("keeps"))
    )
    for span in (*(one.text for one in keeps), *record.texts("may")):
        if span not in text:
            raise InvalidInput(f"{record.where}: {span!r:.80} is not a part of the message.")
    return ScriptMessage(
        id, record.text("session", "1"), role, text, record.time("at"), keeps, record.texts("may"),
        record.texts("forgets"),
    )  # fmt: skip


def _parse_question(record: _Record, id: str) -> ScriptQuestion:
    answers, empty = record.texts("answers"), record.flag("empty")
    if not answers and not empty and not record.texts("always"):
        raise InvalidInput(f'{record.where}: a question needs "answers", or "empty": true.')
    return ScriptQuestion(
        id, record.text("text"), record.text("kind", "any"), answers, record.texts("stale"), record.texts("always"),
        empty,
    )  # fmt: skip


def _parse_lines(where: str) -> Callable[[_Record, str], Step]:
    return lambda record, id: Lines(id, where, record.texts("true"), record.texts("false"))


_PARSERS: Mapping[str, Callable[[_Record, str], Step] | None] = {
    "memory": lambda _, id: Begin(id),
    "session": None,  # a message names its session
    "message": _parse_message,
    "question": _parse_question,
    "profile": _parse_lines("profile"),
    "facts": _parse_lines("facts"),
    "note": None,
}
