"""Read a folder of documents and questions: docs.jsonl.gz and questions.jsonl.gz, as bench/README.md describes."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from engrain.core.errors import InvalidInput
from engrain.core.model.items import ROLES, Note, SessionPosition


@dataclass(frozen=True, slots=True)
class Doc:
    space: str
    id: str
    text: str
    session: str | None = None
    turn: int | None = None
    ts: str | None = None
    speaker: str | None = None
    role: str | None = None

    @property
    def name(self) -> str | None:
        """The speaker's name; None if it is only a role."""
        return None if self.speaker is None or self.speaker.casefold() in ROLES else self.speaker

    @property
    def line(self) -> str:
        """The line of a transcript, for systems that keep only texts. Without the name they find far less."""
        return f"{self.name}: {self.text}" if self.name else self.text

    @property
    def note(self) -> Note:
        """The note that an importer of chats would make."""
        return Note(self.text, occurred_at=self.ts, position=self._place, metadata={"doc": self.id})

    @property
    def _place(self) -> SessionPosition | None:
        if self.session is None:
            return None
        return SessionPosition(self.session, self.turn, self.name, self.role if self.role in ROLES else None)


@dataclass(frozen=True, slots=True)
class Question:
    space: str
    id: str
    text: str
    category: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    docs: tuple[Doc, ...]
    questions: tuple[Question, ...]

    @property
    def spaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(doc.space for doc in self.docs))

    def docs_of(self, space: str) -> list[Doc]:
        return [doc for doc in self.docs if doc.space == space]


def read_folder(path: Path) -> Folder:
    docs = tuple(_parse_doc(row) for row in _read_rows(path / "docs.jsonl.gz"))
    questions = tuple(_parse_question(row) for row in _read_rows(path / "questions.jsonl.gz"))
    known = {(doc.space, doc.id) for doc in docs}
    for question in questions:
        if any((question.space, doc) not in known for doc in question.gold):
            raise InvalidInput(f"{path}: question {question.id} cites a document that is not in docs.jsonl.gz.")
    return Folder(path.name, docs, questions)


def _read_rows(path: Path) -> list[Mapping[str, Any]]:
    try:
        with gzip.open(path, "rb") as file:
            return [orjson.loads(line) for line in file if line.strip()]
    except FileNotFoundError as exc:
        raise InvalidInput(f"there is no {path}. A folder has docs.jsonl.gz and questions.jsonl.gz.") from exc
    except (OSError, EOFError, orjson.JSONDecodeError) as exc:
        raise InvalidInput(f"{path} is not gzipped JSON lines: {exc}.") from exc


def _parse_doc(row: Mapping[str, Any]) -> Doc:
    # A picture is part of the message: importers without a field for it append its caption to the text.
    text = f"{row['text']} [shares {row['caption']}]" if row.get("caption") else str(row["text"])
    fields = {name: row.get(name) for name in ("session", "turn", "ts", "speaker", "role")}
    return Doc(str(row["space"]), str(row["id"]), text, **fields)


def _parse_question(row: Mapping[str, Any]) -> Question:
    gold = frozenset(str(id) for id in row.get("gold") or ())
    return Question(str(row["space"]), str(row["id"]), str(row["question"]), str(row.get("category") or "all"), gold)
