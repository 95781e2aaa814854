"""One plan inside its transaction: what every step needs to know and to count."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

from engrain.core.items import Draft, Vectors, Words
from engrain.core.scope import Scope
from engrain.stores.sqlite.engine import Connection


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
