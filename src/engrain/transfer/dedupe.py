"""Tell new, known and changed notes of an import apart, and extract facts from its conversations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engrain.core.formats.importers import ATTACHMENT_KEY
from engrain.core.identity import Scope
from engrain.core.model.items import Item, Note, Source, Statement
from engrain.core.model.messages import item_to_message
from engrain.core.model.plans import Correct, Plan
from engrain.core.rules.message_filters import blank_recalled
from engrain.core.rules.statements import load_statement_rules
from engrain.ingest import gate, write
from engrain.ingest.facts import Utterance, build_note
from engrain.ports import Services
from engrain.ports.storage import iterate_rows
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import require_movable

BATCH_SIZE = 256
MAX_GATE_CHARACTERS = 20_000  # that the gate reads of a message: the rest is pasted text


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
    asked = _load_answered_requests(services, scope)
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
    number = None if note.place is None else replace(note.place, number=None)
    return replace(note, importance=item.importance, slot=item.slot, place=number)


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


def _load_answered_requests(services: Services, scope: Scope) -> dict[str, str]:
    """Return request id -> id of the item that the request added."""
    rows = iterate_rows(require_movable(services), "request", scope)
    return {row.key[1]: row.values["outcomes"][0][0] for row in rows}


def find_lasting_statements(text: str) -> list[Statement]:
    """Find the statements of a message that are worth keeping. It takes a millisecond or two."""
    found = gate.find_statements(blank_recalled(text[:MAX_GATE_CHARACTERS]))
    # A request to forget was addressed to the other system, not to this memory.
    return [one for one in found if isinstance(one, Statement)]


def extract_facts(
    notes: Sequence[Note],
    scope: Scope,
    services: Services,
    find: Callable[[str], list[Statement]] = find_lasting_statements,
) -> Iterator[Note]:
    """Yield facts that cite the stored messages of these notes, except those that were extracted before."""
    asked = _load_answered_requests(services, scope)
    imported = {
        asked[name]: note for note in notes if is_users_message(note) and asked.get(name := note.request_id or "")
    }
    ids = list(imported)
    for start in range(0, len(ids), BATCH_SIZE):
        for item in services.items.get_many(scope, ids[start : start + BATCH_SIZE]):
            if item.retracted_at is None:
                utterance = Utterance(item_to_message(item), item.id)
                found = _build_facts(utterance, find(utterance.message.text), imported[item.id], services)
                yield from (fact for fact in found if fact.request_id not in asked)


def is_users_message(note: Note) -> bool:
    """Tell if the user wrote the text, in contrast to an attachment."""
    return note.place is not None and note.place.role == "user" and ATTACHMENT_KEY not in (note.metadata or {})


def _build_facts(
    utterance: Utterance, statements: Sequence[Statement], note: Note, services: Services
) -> Iterator[Note]:
    origin = note.source.name if isinstance(note.source, Source) else None
    for found in statements:
        if (words := utterance.quote(found)).strip():
            ended = found.replaces is not None or load_statement_rules().sign("ended").search(words) is not None
            fact = build_note(replace(found, slot=None) if ended else found, utterance, services)
            cites = fact.source.cites if isinstance(fact.source, Source) else ()
            name = f"{note.request_id}\x1ffact {found.start}"
            yield replace(fact, source=Source(origin, "import", cites), request_id=name)
