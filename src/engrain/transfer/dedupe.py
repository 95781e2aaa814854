"""Tell the new, known and changed notes of an import apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engrain.core.identity import Scope
from engrain.core.model.items import Item, Note
from engrain.core.model.plans import Correct, Plan
from engrain.ingest import write
from engrain.ports import Services
from engrain.ports.storage import iterate_rows
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import require_movable

BATCH_SIZE = 256


@dataclass(frozen=True, slots=True)
class Deduplicated:
    new: list[Note] = field(default_factory=list)
    changed: list[tuple[Item, Note]] = field(default_factory=list)  # with the item whose words the note replaces
    known: int = 0  # unchanged, or corrected here since
    barred: int = 0  # changed to words that were forgotten here


def deduplicate(notes: Sequence[Note], scope: Scope, services: Services) -> Deduplicated:
    """Sort the notes by their request ids, which are their ids in the source. Of two with one id, the last counts."""
    store = require_movable(services)
    given = {note.request_id or "": note for note in notes}
    asked = load_answered_requests(services, scope)
    # The texts as they would be stored, and as tombstones have them.
    texts = {name: write.build_draft(note, services.redact).text for name, note in given.items()}
    versions = _load_versions(services, scope, {id for name in given if (id := asked.get(name))})
    new: list[Note] = []
    changed: list[tuple[Item, Note]] = []
    for name, note in given.items():
        here = versions.get(asked.get(name) or "")
        if not here:
            new.append(_extend_request_id(note) if name in asked else note)
        elif (
            all(source.kind == "import" for source in here[-1].sources)
            and not note.relation
            and all(one.text != texts[name] for one in here)
        ):
            if note.slot:
                new.append(_extend_request_id(note))
            else:
                changed.append((here[-1], note))
    tombstones = TombstoneFilter([], [scope], services, store, [texts[note.request_id or ""] for _, note in changed])
    allowed = [(item, note) for item, note in changed if not tombstones.rejects_text(texts[note.request_id or ""])]
    return Deduplicated(new, allowed, len(notes) - len(new) - len(changed), len(changed) - len(allowed))


def plan_corrections(
    changed: Sequence[tuple[Item, Note]], scope: Scope, services: Services, began: int, *, embed: bool = True
) -> Iterator[Plan]:
    """Yield plans that replace the words of items that were imported before."""
    for start in range(0, len(changed), BATCH_SIZE):
        part = changed[start : start + BATCH_SIZE]
        notes = [_keep_place(item, note) for item, note in part]
        drafts = (
            write.build_drafts(notes, services)
            if embed
            else [write.build_draft(note, services.redact) for note in notes]
        )
        steps = tuple(Correct(item.id, draft) for (item, _), draft in zip(part, drafts, strict=True))
        yield Plan(scope, steps, began=began)


def _keep_place(item: Item, note: Note) -> Note:
    number = None if note.position is None else replace(note.position, number=None)
    return replace(note, importance=item.importance, slot=item.slot, position=number)


def _extend_request_id(note: Note) -> Note:
    """Add the words to the request id: a forgotten item leaves its id behind. Tombstones decide about the words."""
    words = hashlib.blake2b(f"{note.text}\x1f{note.occurred_at}".encode(), digest_size=8).hexdigest()
    return replace(note, request_id=f"{note.request_id}\x1f{words}")


def _load_versions(services: Services, scope: Scope, ids: Iterable[str]) -> dict[str, list[Item]]:
    """Load each existing item with its corrections, oldest first."""
    found: dict[str, Item] = {}
    asked = list(ids)
    while asked:
        some = services.items.get_many(scope, asked)
        found |= {one.id: one for one in some}
        asked = [one.replaced_by for one in some if one.replaced_by and one.replaced_by not in found]
    return {id: _follow_corrections(id, found) for id in ids if id in found}


def _follow_corrections(id: str | None, found: dict[str, Item]) -> list[Item]:
    chain: list[Item] = []
    while id in found and found[id] not in chain:
        chain.append(found[id])
        id = chain[-1].replaced_by
    return chain


def load_answered_requests(services: Services, scope: Scope) -> dict[str, str]:
    """Return request id -> id of the item that the request added."""
    rows = iterate_rows(require_movable(services), "request", scope)
    return {row.key[1]: row.values["outcomes"][0][0] for row in rows if row.values["outcomes"]}
