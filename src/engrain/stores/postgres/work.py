"""One plan inside its transaction: what every step needs to know and to count."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engrain.core.model.items import Draft, Vectors, Words
from engrain.stores.postgres.link import Db


@dataclass(slots=True)
class Work:
    db: Db
    owner: str  # the scope's id
    now: datetime
    micros: int
    key: bytes
    models: Mapping[str, tuple[int, int]]  # by key: number and dimension
    changed: bool = False
    given: dict[str, str | None] = field(default_factory=dict)  # what the steps so far gave, by own(step)
    indexing: list[tuple[str, Words, Vectors | None]] = field(default_factory=list)

    def change(self, sql: str, args: Any) -> None:
        """A statement that takes a number of the change sequence."""
        self.changed = True
        self.db.run(sql, args)

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
