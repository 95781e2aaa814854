"""Tell what of an import came in before, and what was changed since where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from engrain.core.clock import checked_time
from engrain.core.formats.importers import ATTACHMENT
from engrain.core.identity import Scope
from engrain.core.model.items import Item, Note, Source, Worth
from engrain.core.model.messages import Message, message_of
from engrain.core.model.plans import Correct, Plan
from engrain.core.rules.message_filters import blank_recalled
from engrain.core.rules.statements import statements
from engrain.ingest import gate, write
from engrain.ingest.facts import Utterance, build_note
from engrain.ports import Kit
from engrain.privacy.tombstones import TombstoneFilter
from engrain.transfer.export import every, movable

BATCH = 256


@dataclass(frozen=True, slots=True)
class Sorted:
    """`changed` are notes with the item whose words they replace. `known` are here as they are, or were corrected here
    since; `barred` were changed to what was forgotten here."""

    new: list[Note] = field(default_factory=list)
    changed: list[tuple[Item, Note]] = field(default_factory=list)
    known: int = 0
    barred: int = 0


def sort(notes: Sequence[Note], scope: Scope, kit: Kit) -> Sorted:
    """By the names that notes have where they come from, which are their request ids. Of two with one name the last
    counts."""
    store = movable(kit)
    given = {note.request_id or "": note for note in notes}
    asked = {row.key[1]: row.values["outcomes"][0][0] for row in every(store, "request", scope)}
    # As they would be kept, and as a tombstone knows them.
    texts = {name: write.build_draft(note, kit.redact).text for name, note in given.items()}
    versions = _versions(kit, scope, {id for name in given if (id := asked.get(name))})
    new: list[Note] = []
    changed: list[tuple[Item, Note]] = []
    for name, note in given.items():
        here = versions.get(asked.get(name) or "")
        if not here:
            new.append(_anew(note) if name in asked else note)
        elif _imported(here[-1]) and not note.relation and all(one.text != texts[name] for one in here):
            if note.slot:
                new.append(_anew(note))
            else:
                changed.append((here[-1], note))
    tombstones = TombstoneFilter([], [scope], kit, store, [texts[note.request_id or ""] for _, note in changed])
    allowed = [(item, note) for item, note in changed if not tombstones.rejects_text(texts[note.request_id or ""])]
    return Sorted(new, allowed, len(notes) - len(new) - len(changed), len(changed) - len(allowed))


def take_over(changed: Sequence[tuple[Item, Note]], scope: Scope, kit: Kit, began: int) -> None:
    """Each in place of the words that came in before."""
    for start in range(0, len(changed), BATCH):
        part = changed[start : start + BATCH]
        drafts = write.build_drafts([_in_place(item, note) for item, note in part], kit)
        steps = tuple(Correct(item.id, draft) for (item, _), draft in zip(part, drafts, strict=True))
        kit.items.apply(Plan(scope, steps, began=began))


def _in_place(item: Item, note: Note) -> Note:
    number = None if note.place is None else replace(note.place, number=None)
    return replace(note, importance=item.importance, slot=item.slot, place=number)


def _anew(note: Note) -> Note:
    """What was forgotten since has left its name behind; whether the words may come in is told by the tombstones."""
    words = hashlib.blake2b(f"{note.text}\x1f{note.occurred_at}".encode(), digest_size=8).hexdigest()
    return replace(note, request_id=f"{note.request_id}\x1f{words}")


def _imported(item: Item) -> bool:
    return all(source.kind == "import" for source in item.sources)


def _versions(kit: Kit, scope: Scope, ids: Iterable[str]) -> dict[str, list[Item]]:
    """Of each item that is here what it is and what it was corrected to, oldest first."""
    found: dict[str, Item] = {}
    asked = list(ids)
    while asked:
        some = kit.items.get_many(scope, asked)
        found |= {one.id: one for one in some}
        asked = [one.replaced_by for one in some if one.replaced_by and one.replaced_by not in found]
    return {id: _chain(id, found) for id in ids if id in found}


def _chain(id: str | None, found: dict[str, Item]) -> list[Item]:
    chain: list[Item] = []
    while id in found and found[id] not in chain:
        chain.append(found[id])
        id = chain[-1].replaced_by
    return chain


HEAD = 20_000  # characters: what is behind them was pasted
PAGE = 256


def drawn(notes: Sequence[Note], scope: Scope, kit: Kit) -> Iterator[Note]:
    """Facts that cite messages which are here, by the names that the messages have where they come from. What was drawn
    before is not drawn again."""
    asked = {row.key[1]: row.values["outcomes"][0][0] for row in every(movable(kit), "request", scope)}
    told = {asked[name]: note for note in notes if _by_user(note) and asked.get(name := note.request_id or "")}
    ids = list(told)
    for start in range(0, len(ids), PAGE):
        for item in kit.items.get_many(scope, ids[start : start + PAGE]):
            if item.retracted_at is None:
                found = _facts(Utterance(message_of(item), item.id), told[item.id], kit)
                yield from (fact for fact in found if fact.request_id not in asked)


def foreseen(notes: Sequence[Note], kit: Kit) -> Iterator[Note]:
    """The same of messages that are not here yet, and so without their cites."""
    for note in filter(_by_user, notes):
        message = Message("user", write.build_draft(note, kit.redact).text, occurred_at=_time(note))
        for fact in _facts(Utterance(message, ""), note, kit):
            yield replace(fact, source=Source(_name(note), "import"))


def _by_user(note: Note) -> bool:
    """Said by them, not handed over."""
    return note.place is not None and note.place.role == "user" and ATTACHMENT not in (note.metadata or {})


def _facts(said: Utterance, note: Note, kit: Kit) -> Iterator[Note]:
    for found in gate.find_statements(blank_recalled(said.message.text[:HEAD])):
        # What somebody wanted forgotten there is no matter of this memory.
        if isinstance(found, Worth) and (words := said.quote(found)).strip():
            ended = found.replaces is not None or statements().sign("ended").search(words) is not None
            fact = build_note(replace(found, slot=None) if ended else found, said, kit)
            cites = fact.source.cites if isinstance(fact.source, Source) else ()
            name = f"{note.request_id}\x1ffact {found.start}"
            yield replace(fact, source=Source(_name(note), "import", cites), request_id=name)


def _name(note: Note) -> str | None:
    return note.source.name if isinstance(note.source, Source) else None


def _time(note: Note) -> datetime | None:
    return None if note.occurred_at is None else checked_time(note.occurred_at, "occurred_at")
