"""Draw from imported conversations what users said of themselves that lasts, as the gate does with what is said now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from engrain.capture import gate
from engrain.capture.keeping import Said, note_for
from engrain.core.echo import own_words
from engrain.core.foreign import ATTACHMENT
from engrain.core.items import Source
from engrain.core.messages import message_of
from engrain.core.notes import Note
from engrain.core.scope import Scope
from engrain.core.statements import statements
from engrain.core.worth import Worth
from engrain.lifecycle.exchange.exporting import every, movable
from engrain.ports import Kit

HEAD = 20_000  # characters: what is behind them was pasted
PAGE = 256


def find_worth(text: str) -> list[Worth]:
    """The statements of a message that are worth keeping. It takes a millisecond or two."""
    # What somebody wanted forgotten there is no matter of this memory.
    return [one for one in gate.worth(own_words(text[:HEAD])) if isinstance(one, Worth)]


def drawn(
    notes: Sequence[Note], scope: Scope, kit: Kit, find: Callable[[str], list[Worth]] = find_worth
) -> Iterator[Note]:
    """Facts that cite messages which are here, by the names that the messages have where they come from. What was drawn
    before is not drawn again."""
    asked = {row.key[1]: row.values["outcomes"][0][0] for row in every(movable(kit), "request", scope)}
    told = {asked[name]: note for note in notes if by_user(note) and asked.get(name := note.request_id or "")}
    ids = list(told)
    for start in range(0, len(ids), PAGE):
        for item in kit.items.get_many(scope, ids[start : start + PAGE]):
            if item.retracted_at is None:
                said = Said(message_of(item), item.id)
                found = _facts(said, find(said.message.text), told[item.id], kit)
                yield from (fact for fact in found if fact.request_id not in asked)


def by_user(note: Note) -> bool:
    """Said by them, not handed over."""
    return note.place is not None and note.place.role == "user" and ATTACHMENT not in (note.metadata or {})


def _facts(said: Said, worth: Sequence[Worth], note: Note, kit: Kit) -> Iterator[Note]:
    for found in worth:
        if (words := said.words(found)).strip():
            ended = found.replaces is not None or statements().sign("ended").search(words) is not None
            fact = note_for(replace(found, slot=None) if ended else found, said, kit)
            cites = fact.source.cites if isinstance(fact.source, Source) else ()
            name = f"{note.request_id}\x1ffact {found.start}"
            yield replace(fact, source=Source(_name(note), "import", cites), request_id=name)


def _name(note: Note) -> str | None:
    return note.source.name if isinstance(note.source, Source) else None
