"""Tell what would become of notes, without writing any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from engrain.capture import write
from engrain.core.coherence import held_by
from engrain.core.items import Draft
from engrain.core.notes import Note
from engrain.core.reconcile import Version, mergeable, reconcile
from engrain.core.scope import Scope
from engrain.lifecycle.erasure.barring import Barrier
from engrain.lifecycle.exchange.exporting import every, movable
from engrain.ports import Kit, Movable


def foretold(notes: Sequence[Note], scope: Scope, kit: Kit) -> Iterator[str]:
    """For each note the status that a write would give it, as core.reconcile decides, one after the other."""
    store = movable(kit)
    foreseen = _Foreseen(scope, kit, store)
    barrier = Barrier([], [scope], kit, store, [note.text for note in notes])
    for note in notes:
        yield foreseen.status(note, barrier.bars(note.text))


class _Foreseen:
    def __init__(self, scope: Scope, kit: Kit, store: Movable) -> None:
        self._scope, self._kit = scope, kit
        self._now = kit.clock()
        self._asked = {row.key[1] for row in every(store, "request", scope)}
        self._held = {one for row in every(store, "item", scope) for one in held_by(row.values)}
        self._slots: dict[str, list[Version]] = {}

    def status(self, note: Note, barred: bool) -> str:
        if note.request_id is not None and note.request_id in self._asked:
            return "repeated"
        if note.derived and barred:
            return "kept_out"
        self._asked.add(note.request_id or "")
        draft = write.draft(note, self._kit.redact)
        if draft.slot is not None:
            return self._in_slot(draft, draft.slot)
        if not mergeable(draft):
            return "added"
        words = "words", draft.text, draft.kind, *((vars_of(draft)) if draft.relation else ())
        status = "repeated" if words in self._held else "added"
        self._held.add(words)
        return status

    def _in_slot(self, draft: Draft, slot: str) -> str:
        if slot not in self._slots:
            found = self._kit.items.history(self._scope, slot)
            self._slots[slot] = [
                Version(one.id, f"{one.kind} {one.text}", one.valid_from, one.valid_to)
                for one in found
                if one.retracted_at is None
            ]
        versions = self._slots[slot]
        decision = reconcile(draft, f"{draft.kind} {draft.text}", self._now, versions)
        if decision.action == "repeat":
            return "repeated"
        self._slots[slot] = [_ended(one, decision.closes, decision.valid_from) for one in versions]
        self._slots[slot].append(
            Version(f"new {len(versions)}", f"{draft.kind} {draft.text}", decision.valid_from, decision.valid_to)
        )
        return "behind" if decision.valid_to is not None else "replaced" if decision.closes else "added"


def vars_of(draft: Draft) -> tuple[str, str, str]:
    assert draft.relation is not None
    return draft.relation.subject, draft.relation.relation, draft.relation.object


def _ended(version: Version, closes: str | None, at: datetime) -> Version:
    return Version(version.id, version.hash, version.valid_from, at) if version.id == closes else version
