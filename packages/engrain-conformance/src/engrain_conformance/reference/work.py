"""One plan inside its transaction: what every step needs to know and to count."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.identity import IdSource, Scope
from engrain.core.model.erasure import ErasedSubject, Erasure, first_summary_version, hash_session_subjects
from engrain.core.model.items import Draft
from engrain.core.model.queries import Summary
from engrain_conformance.reference.state import Changed, State


class Work:
    def __init__(self, state: State, scope: Scope, now: datetime, ids: IdSource, key: bytes) -> None:
        self.state, self.scope, self.now, self.ids, self.key = state, scope, now, ids, key
        self.given: dict[str, str | None] = {}  # what the steps so far gave, by own(step)

    def update(self, id: str, **values: Any) -> None:
        stored = self.state.items[id]
        self.state.items[id] = replace(stored, item=replace(stored.item, **values))
        self.mark(id)

    def mark(self, id: str, gone: bool = False) -> None:
        self.state.seq += 1
        self.state.newest = self.now
        self.state.changes[id] = Changed(self.state.seq, self.scope, id, gone)

    def hash_of(self, draft: Draft) -> str:
        relation = draft.relation
        parts = (relation.subject, relation.relation, relation.object) if relation else ()
        return self.digest("item", draft.kind, draft.text, *parts)

    def fingerprint(self, text: str) -> str:
        return self.digest("text", text)

    def entombed(self, text: str) -> bool:
        hash = self.fingerprint(text)
        return (self.scope, hash) in self.state.tombstones or (
            self.digest("scope", self.scope.id), hash,
        ) in self.state.graves  # fmt: skip

    def digest(self, *parts: str) -> str:
        digest = hashlib.blake2b(key=self.key, digest_size=16)
        for part in parts:
            raw = part.encode()
            digest.update(b"%d:" % len(raw) + raw)
        return digest.hexdigest()


def stored_summary(state: State, key: bytes, scope: Scope, session: str) -> Summary:
    """One of version 0 if there never was any; after an erasure one whose version none from before has."""
    marks = hash_session_subjects(key, scope, session)
    known: list[ErasedSubject | Erasure] = [*state.erased.values(), *state.erasing.values()]
    at = max((to_micros(one.at) for one in known if one.mark in marks), default=0)
    return state.summaries.get((scope, session), Summary("", 0, first_summary_version(at)))
