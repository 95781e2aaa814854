"""Make of an item's row all that is to be written, before anybody waits for it."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from engrain.core.model.items import Vectors, Words
from engrain.core.model.rows import Row
from engrain.core.text.passages import index_words
from engrain.stores.relational.rows import write_metadata

_AS_THEY_ARE = (
    "id", "kind", "importance", "trust", "pinned", "traits", "occurred_at", "recorded_at", "valid_from", "valid_to",
    "retracted_at", "expires_at", "place", "session", "speaker", "role", "slot", "access_count", "last_accessed",
    "replaced_by", "text",
)  # fmt: skip
COLUMNS = (*_AS_THEY_ARE, "passages", "hash", "metadata", "subject", "relation", "object")


@dataclass(frozen=True, slots=True)
class Ready:
    """`columns` are the values of COLUMNS; entities are the names in a relation."""

    id: str
    columns: tuple[Any, ...]
    words: Words
    sources: tuple[tuple[str, str | None], ...]
    entities: tuple[str, ...]
    vectors: tuple[Vectors, ...]


def ready(row: Row) -> Ready:
    values = row.values
    words = index_words(values["text"], values["speaker"], values["slot"])
    relation = values["relation"] or {}
    names = tuple(relation.get(name) for name in ("subject", "relation", "object"))
    made = (words.passages, bytes.fromhex(values["hash"]), write_metadata(values["metadata"]), *names)
    return Ready(
        row.key[0],
        (*(values[name] for name in _AS_THEY_ARE), *made),
        words,
        tuple((kind, name) for kind, name in values["sources"]),
        tuple(name.casefold() for name in (names[0], names[2]) if name is not None),
        tuple(Vectors(model, tuple(map(b64decode, rows))) for model, rows in values["vectors"].items()),
    )
