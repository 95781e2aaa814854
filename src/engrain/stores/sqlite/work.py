"""One plan inside its transaction: what every step needs to know and to count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Vectors, Words
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")


@dataclass(slots=True)
class Work:
    db: Connection
    scope: Scope
    scope_n: int
    now: datetime
    micros: int
    seq: int
    key: bytes
    indexing: list[tuple[int, Words, Vectors | None]] = field(default_factory=list)
    given: dict[str, str | None] = field(default_factory=dict)  # what the steps so far gave, by own(step)

    def standing(self, name: str) -> str | None:
        """The id of what a step gave, if it is still there."""
        id_ = self.given[name]
        return None if id_ is None or item_number(self.db, self.scope_n, id_) is None else id_

    def mark(self) -> int:
        """The number of one more change."""
        self.seq += 1
        return self.seq

    def hash_of(self, draft: Draft) -> bytes:
        relation = draft.relation
        parts = (relation.subject, relation.relation, relation.object) if relation else ()
        return self.digest("item", draft.kind, draft.text, *parts)

    def digest(self, *parts: str) -> bytes:
        """Keyed, so that a hash says nothing to another store; length-prefixed, so that parts cannot run together."""
        digest = hashlib.blake2b(key=self.key, digest_size=16)
        for part in parts:
            raw = part.encode()
            digest.update(b"%d:" % len(raw) + raw)
        return digest.digest()


def item_number(db: Connection, scope: int | None, id_: str) -> int | None:
    rows = db.rows(_SQL["item_number"], (scope, id_))
    return int(rows[0][0]) if rows else None


def known_item(db: Connection, scope: int | None, id_: str) -> int:
    number = item_number(db, scope, id_)
    if number is None:
        raise NotFound(f"there is no item {id_!r} in this scope.")
    return number
