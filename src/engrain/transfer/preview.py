"""Tell what would become of notes, without writing any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from engrain.core.errors import Conflict, EngrainError, InvalidInput, NotFound
from engrain.core.formats.consistency import unique_keys
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Note, SessionPosition
from engrain.core.model.plans import StoredVersion, is_mergeable, reconcile
from engrain.ingest import write
from engrain.ingest.write import redact_note
from engrain.ports import Movable, Services
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import iterate_rows, require_movable


def foretold(notes: Sequence[Note], scope: Scope, services: Services) -> Iterator[str | EngrainError]:
    """For each note the status that a write would give it, as core.reconcile decides, one after the other; or the error
    that it would meet."""
    store = require_movable(services)
    foreseen = _Foreseen(scope, services, store)
    cleaned = [_cleaned(note, services) for note in notes]
    tombstones = TombstoneFilter(
        [], [scope], services, store, [note.text for note in cleaned if isinstance(note, Note)]
    )
    for note in cleaned:
        if isinstance(note, EngrainError):
            yield note
            continue
        try:
            yield foreseen.status(note, tombstones.rejects_text(note.text))
        except EngrainError as exc:
            yield exc


def _cleaned(note: Note, services: Services) -> Note | EngrainError:
    """As it would be kept, and as a tombstone knows it."""
    try:
        return redact_note(note, services.redact)
    except EngrainError as exc:
        return exc


class _Foreseen:
    def __init__(self, scope: Scope, services: Services, store: Movable) -> None:
        self._scope, self._services = scope, services
        self._now = services.clock()
        self._asked = {row.key[1] for row in iterate_rows(store, "request", scope)}
        self._held: set[tuple[Any, ...]] = set()
        self._texts: dict[str, str] = {}
        self._places: dict[tuple[str, int], str] = {}
        for row in iterate_rows(store, "item", scope):
            self._held.update(unique_keys(row.values))
            self._texts[row.key[0]] = row.values["text"]
            if row.values["session"] is not None and row.values["retracted_at"] is None:
                self._places[row.values["session"], row.values["place"]] = row.values["text"]
        self._lengths = {row.key[1]: row.values["length"] for row in iterate_rows(store, "session", scope)}
        self._slots: dict[str, list[StoredVersion]] = {}

    def status(self, note: Note, barred: bool) -> str:
        if note.derived and barred:
            return "kept_out"
        if note.request_id is not None and note.request_id in self._asked:
            return "repeated"
        draft = write.build_draft(note)
        for cite in draft.source.cites:
            self._check(cite)
        if draft.place and self._placed(draft, draft.place):
            return "repeated"
        self._asked.add(note.request_id or "")
        if draft.slot is not None:
            return self._in_slot(draft, draft.slot)
        if not is_mergeable(draft):
            return "added"
        words = "words", draft.text, draft.kind, *((vars_of(draft)) if draft.relation else ())
        status = "repeated" if words in self._held else "added"
        self._held.add(words)
        return status

    def _check(self, cite: Citation) -> None:
        text = self._texts.get(cite.item)
        if text is None:
            raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
        if cite.end is not None and cite.end > len(text):
            raise InvalidInput(f"the cited span {cite.start}:{cite.end} is not in item {cite.item!r}.")

    def _placed(self, draft: Draft, place: SessionPosition) -> bool:
        """Whether it stands there already."""
        length = self._lengths.get(place.session, 0)
        number = length if place.number is None else place.number
        taken = self._places.get((place.session, number))
        if taken is not None and taken != draft.text:
            raise Conflict(f"place {number} of session {place.session!r} holds another text.")
        self._places[place.session, number] = draft.text
        self._lengths[place.session] = max(length, number + 1)
        return taken is not None

    def _in_slot(self, draft: Draft, slot: str) -> str:
        if slot not in self._slots:
            found = self._services.items.history(self._scope, slot)
            self._slots[slot] = [
                StoredVersion(one.id, f"{one.kind} {one.text}", one.valid_from, one.valid_to)
                for one in found
                if one.retracted_at is None
            ]
        versions = self._slots[slot]
        decision = reconcile(draft, f"{draft.kind} {draft.text}", self._now, versions)
        if decision.action == "repeat":
            return "repeated"
        self._slots[slot] = [_ended(one, decision.closes, decision.valid_from) for one in versions]
        self._slots[slot].append(
            StoredVersion(f"new {len(versions)}", f"{draft.kind} {draft.text}", decision.valid_from, decision.valid_to)
        )
        return "behind" if decision.valid_to is not None else "replaced" if decision.closes else "added"


def vars_of(draft: Draft) -> tuple[str, str, str]:
    assert draft.relation is not None
    return draft.relation.subject, draft.relation.relation, draft.relation.object


def _ended(version: StoredVersion, closes: str | None, at: datetime) -> StoredVersion:
    return StoredVersion(version.id, version.hash, version.valid_from, at) if version.id == closes else version
