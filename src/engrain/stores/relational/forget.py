"""Forget an item: remove it with all that rests on it, and cut what it cites out of the items that stay."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from engrain.core.identity import hash_keyed
from engrain.core.model.plans import Forget, Outcome
from engrain.core.rules.removal import cites_any_span, cut_spans, shift_offset
from engrain.core.rules.statements import detect_traits
from engrain.core.text.passages import Span, index_words
from engrain.stores.relational.dialect import Transaction


class RemovableItem(NamedTuple):
    n: int
    id: str
    kind: str
    text: str
    session: str | None
    place: int | None


class Removal(NamedTuple):
    versions: set[int]  # of the item itself: the standing one, and those that were corrected
    items: list[RemovableItem]  # all that goes
    spans: dict[int, list[Span]]  # to be cut, by item


def forget_item(tx: Transaction, step: Forget, at: int) -> Outcome:
    """Forget inside a write that has checked the holds. `at` is the time of the tombstones, in microseconds."""
    found = find_removal(tx, step)
    if not found.versions:
        return Outcome(step.id, "missing")
    numbers = [one.n for one in found.items]
    if step.unchanged_since is not None and tx.rows("find_changed", numbers=numbers, since=step.unchanged_since):
        return Outcome(step.id, "stale")
    # Another summary may use the words of a summary that went.
    tombstoned = {one.n for one in found.items if one.kind != "summary" or one.n in found.versions}
    remove_items(tx, found.items, tombstoned, at)
    cut = [_cut_item(tx, n, spans, at) for n, spans in found.spans.items() if n not in numbers]
    tx.mark_purge()
    others = tuple(one.id for one in found.items if one.id != step.id)
    return Outcome(step.id, "forgotten", others, tuple(cut))


def find_removal(tx: Transaction, step: Forget) -> Removal:
    versions = {n for (n,) in tx.rows("find_versions", id=step.id)}
    items = _load_dependents(tx, versions)
    spans = {} if step.keep_source else _find_cut_spans(tx, items, versions)
    citing = _find_citing(tx, spans) - {one.n for one in items}
    if citing:
        items = _load_dependents(tx, {one.n for one in items} | citing)
    return Removal(versions, items, spans)


def remove_items(tx: Transaction, items: Sequence[RemovableItem], tombstoned: Collection[int], at: int) -> None:
    """Delete the items with all that hangs on them. Those in `tombstoned` leave a tombstone of their text."""
    for one in items:
        if one.n in tombstoned:
            _add_tombstone(tx, one.text, at)
        _reset_summary(tx, one.session, one.place)
        tx.run("add_deleted_item", n=one.n, id=one.id)
    numbers = [one.n for one in items]
    tx.delete_index(numbers)
    tx.run("delete_items", numbers=numbers)


def _load_dependents(tx: Transaction, numbers: Collection[int]) -> list[RemovableItem]:
    """These items, the versions that they corrected, the items that cite any of them, and so on."""
    return [RemovableItem(*row) for row in tx.rows("load_dependents", numbers=numbers)] if numbers else []


def _find_cut_spans(
    tx: Transaction, items: Sequence[RemovableItem], versions: Collection[int]
) -> dict[int, list[Span]]:
    """A citation of a whole item counts only if the forgotten item itself made it.

    Else forgetting one message would remove an item that rests on several, and with it the other messages."""
    spans: dict[int, list[Span]] = {}
    for item, cited, start, end, length in tx.rows("load_cited_spans", numbers=[one.n for one in items]):
        if item in versions or start is not None or end is not None:
            spans.setdefault(cited, []).append((start or 0, length if end is None else end))
    return spans


def _find_citing(tx: Transaction, spans: Mapping[int, Sequence[Span]]) -> set[int]:
    """The items that cite words to be cut."""
    rows = tx.rows("load_citing", numbers=list(spans)) if spans else []
    return {item for item, cited, start, end in rows if cites_any_span(start, end, spans[cited])}


def _cut_item(tx: Transaction, n: int, spans: list[Span], at: int) -> str:
    """The item stays, with a mark in place of each span. It has no vectors until it is embedded again."""
    ((id_, text, session, place, speaker, role, slot),) = tx.rows("load_cut_item", n=n)
    for piece in (text, *(text[start:end] for start, end in spans)):
        _add_tombstone(tx, piece, at)
    _reset_summary(tx, session, place)
    rest = cut_spans(text, spans)
    words = index_words(rest, speaker, slot)
    # A hash of its own: two items cut to the same words are still two.
    hash_ = bytes.fromhex(hash_keyed(tx.dialect.key, "cut", id_, rest))
    values = {"text": rest, "hash": hash_, "traits": detect_traits(rest, role), "passages": words.passages}
    tx.run("cut_item", n=n, **values, **tx.dialect.index_values(words))
    tx.run("delete_item_entities", n=n)
    tx.run("delete_item_episodes", n=n)
    tx.delete_index([n])
    tx.write_index([(n, words, None)])
    for citation, citing, start, end in tx.rows("load_citations_into", n=n):
        moved = {"span_start": shift_offset(start, spans), "span_end": shift_offset(end, spans)}
        tx.run("move_citation", n=citation, **moved)
        tx.run("mark_item", n=citing)
    return str(id_)


def _add_tombstone(tx: Transaction, text: str, at: int) -> None:
    tx.run("add_tombstone", hash=bytes.fromhex(hash_keyed(tx.dialect.key, "text", text)), at=at)


def _reset_summary(tx: Transaction, session: str | None, place: int | None) -> None:
    """A summary that covers a forgotten message loses its text, and one that is being made will not be stored."""
    if session is not None and place is not None:
        tx.run("reset_summary", session=session, place=place)
