"""Forget an item, a session or a source: remove all that rests on it, and make what remains consistent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from engrain.core.model.erasure import Subject, SubjectKind
from engrain.core.model.items import is_all_forgotten
from engrain.core.model.messages import read_calls
from engrain.core.model.plans import Forget, Outcome
from engrain.core.model.records import ATTACHMENTS, find_range
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.rules.removal import (
    NO_TOOL_DERIVED,
    ItemLineage,
    MessageRow,
    RemovalPlan,
    SourceLineage,
    ToolDerived,
    cites_any_span,
    cut_spans,
    escape_argument,
    find_addresses,
    find_tool_derived,
    plan_removal,
    shift_offset,
)
from engrain.core.rules.tombstone_hashes import hash_cut, hash_tombstone
from engrain.core.text.passages import Span, index_words
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.rows import read_answer, read_metadata
from engrain.stores.relational.scopes import count_tables

SESSION_TABLES = ("episode", "summary", "progress", "session")


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
    numbers = [item.n for item in found.items]
    if step.unchanged_since is not None and tx.rows("find_changed", numbers=numbers, since=step.unchanged_since):
        return Outcome(step.id, "stale")
    # Another summary may use the words of a summary that went.
    tombstoned = {item.n for item in found.items if item.kind != "summary" or item.n in found.versions}
    remove_items(tx, found.items, tombstoned, at)
    cut = [_cut_item(tx, n, spans, at) for n, spans in found.spans.items() if n not in numbers]
    tx.mark_purge()
    others = tuple(item.id for item in found.items if item.id != step.id)
    return Outcome(step.id, "forgotten", others, tuple(cut))


def find_removal(tx: Transaction, step: Forget) -> Removal:
    versions = {n for (n,) in tx.rows("find_versions", id=step.id)}
    items = _load_dependents(tx, versions)
    spans = {} if step.keep_source else _find_cut_spans(tx, items, versions)
    citing = _find_citing(tx, spans) - {item.n for item in items}
    if citing:
        items = _load_dependents(tx, {item.n for item in items} | citing)
    return Removal(versions, items, spans)


def remove_items(tx: Transaction, items: Sequence[RemovableItem], tombstoned: Collection[int], at: int) -> None:
    """Delete the items with all that hangs on them. Those in `tombstoned` leave a tombstone of their text."""
    for item in items:
        if item.n in tombstoned:
            _add_tombstone(tx, item.text, at)
        _reset_summary(tx, item.session, item.place)
        tx.run("add_deleted_item", n=item.n, id=item.id)
    numbers = [item.n for item in items]
    tx.delete_index(numbers)
    tx.run("delete_items", numbers=numbers)
    _delete_attachments(tx, [item.id for item in items if item.kind == "message"])


def _load_dependents(tx: Transaction, numbers: Collection[int]) -> list[RemovableItem]:
    """These items, the versions that they corrected, the items that cite any of them, and so on."""
    return [RemovableItem(*row) for row in tx.rows("load_dependents", numbers=numbers)] if numbers else []


def _find_cut_spans(
    tx: Transaction, items: Sequence[RemovableItem], versions: Collection[int]
) -> dict[int, list[Span]]:
    """A citation of a whole item counts only if the forgotten item itself made it.

    Else forgetting one message would remove an item that rests on several, and with it the other messages."""
    spans: dict[int, list[Span]] = {}
    for item, cited, start, end, length in tx.rows("load_cited_spans", numbers=[item.n for item in items]):
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
    hash_ = bytes.fromhex(hash_cut(tx.dialect.key, id_, rest))
    values = {"text": rest, "hash": hash_, "traits": detect_stored_traits(rest, role), "passages": words.passages}
    tx.run("cut_item", n=n, **values, **tx.dialect.index_values(words))
    tx.run("delete_item_entities", n=n)
    tx.run("delete_item_episodes", n=n)
    if is_all_forgotten(rest):
        _delete_attachments(tx, [id_])
    tx.delete_index([n])
    tx.write_index([(n, words, None)])
    for citation, citing, start, end in tx.rows("load_citations_into", n=n):
        moved = {"span_start": shift_offset(start, spans), "span_end": shift_offset(end, spans)}
        tx.run("move_citation", n=citation, **moved)
        tx.run("mark_item", n=citing)
    return str(id_)


def _delete_attachments(tx: Transaction, messages: Sequence[str]) -> None:
    ranges = (find_range((id_,)) for id_ in messages)
    tx.many("delete_attachments", [{"space": ATTACHMENTS, "low": low, "high": high} for low, high in ranges])


def _add_tombstone(tx: Transaction, text: str, at: int) -> None:
    tx.run("add_tombstone", hash=bytes.fromhex(hash_tombstone(tx.dialect.key, text)), at=at)


def _reset_summary(tx: Transaction, session: str | None, place: int | None) -> None:
    """A summary that covers a forgotten message loses its text, and one that is being made will not be stored."""
    if session is not None and place is not None:
        tx.run("reset_summary", session=session, place=place)


def find_part(tx: Transaction, subject: Subject) -> RemovalPlan:
    """All that goes with a session or a source. The transaction is of its scope."""
    cites: dict[tuple[str, int], list[str]] = {}
    for id_, number, cited in tx.rows("load_citation_lineage"):
        cites.setdefault((id_, number), []).append(cited)
    sources: dict[str, list[SourceLineage]] = {}
    for id_, number, kind, name in tx.rows("load_source_lineage"):
        sources.setdefault(id_, []).append(SourceLineage(number, kind, name, tuple(cites.get((id_, number), ()))))
    items = (
        ItemLineage(id_, kind, session, place, slot, tuple(sources.get(id_, ())), replaced, ends, bool(retracted))
        for _, id_, kind, session, place, slot, replaced, ends, retracted in tx.rows("load_item_lineage")
    )
    return plan_removal(subject, items, _find_tool_derived(tx, subject))


def _find_tool_derived(tx: Transaction, subject: Subject) -> ToolDerived:
    if subject.by != "source":
        return NO_TOOL_DERIVED
    rows = tx.rows("load_tool_sessions", name=subject.name, argument=escape_argument(subject.name))
    messages = (
        MessageRow(id_, session, role, text, read_metadata(metadata), bool(named))
        for id_, session, role, text, metadata, named in rows
    )
    return find_tool_derived(subject.name, messages)


def count_part(tx: Transaction, subject: Subject) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """The rows of each kind that remove_part would remove, the ids of the items, and those that lose a source."""
    if subject.by == "id":
        found = find_removal(tx, Forget(subject.name))
        ids = tuple(item.id for item in found.items)
        cut = len(found.spans.keys() - {item.n for item in found.items})
        return {"item": len(ids), "cut": cut, "request": len(find_requests(tx, ids))}, ids, ()
    plan = find_part(tx, subject)
    return _count_plan(tx, subject, plan), tuple(plan.deleted), tuple(plan.lost_sources)


def _count_plan(tx: Transaction, subject: Subject, plan: RemovalPlan) -> dict[str, int]:
    requests = find_requests(tx, plan.deleted)
    counts = {"item": len(plan.deleted), "source": len(plan.lost_sources), "request": len(requests)}
    if subject.by == "session":
        counts |= count_tables(tx, "count_session_rows", SESSION_TABLES, session=subject.name)
    return counts


def remove_part(tx: Transaction, subject: Subject, at: int) -> tuple[dict[str, int], list[str]]:
    """Remove it inside a write. Return how many rows of each kind went, and the ids of items that went or were cut."""
    if subject.by == "id":
        outcome = forget_item(tx, Forget(subject.name), at)
        ids = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
        counts = {"item": len(ids), "cut": len(outcome.marked), "request": delete_requests(tx, ids)}
        return counts, [*ids, *outcome.marked]
    plan = find_part(tx, subject)
    counts = _count_plan(tx, subject, plan)  # before: an item takes its own episodes along
    _apply_plan(tx, plan, at)
    delete_requests(tx, plan.deleted)
    if subject.by == "session":
        delete = tx.dialect.statements["delete_session_rows"]
        for table in SESSION_TABLES:
            tx.run(delete.fill(table=table), session=subject.name)
    return counts, list(plan.deleted)


def _apply_plan(tx: Transaction, plan: RemovalPlan, at: int) -> None:
    numbers = {row[1]: row[0] for row in tx.rows("load_item_lineage")}
    rows = tx.rows("load_removable", numbers=[numbers[id_] for id_ in plan.deleted])
    remove_items(tx, [RemovableItem(*row) for row in rows], {numbers[id_] for id_ in plan.tombstoned}, at)
    for id_, lost in plan.lost_sources.items():
        for number in lost:
            tx.run("delete_source_citations", n=numbers[id_], number=number)
            tx.run("delete_source", n=numbers[id_], number=number)
        tx.run("store_trust", n=numbers[id_], trust=plan.trust[id_])
    for version in plan.restored:
        tx.run("reopen_item", n=numbers[version.id], valid_to=version.valid_to, replaced_by=version.replaced_by)
    for id_, by in plan.repointed.items():
        tx.run("repoint_item", n=numbers[id_], replaced_by=by)
    for session, place in plan.reprocess_from.items():
        tx.run("set_back_progress", session=session, place=place)


def find_requests(tx: Transaction, ids: Collection[str]) -> list[str]:
    """The requests that were answered with one of these items."""
    removed = set(ids)
    rows = tx.rows("load_requests") if removed else []
    return [id_ for id_, answer in rows if not removed.isdisjoint(_find_ids(answer))]


def delete_requests(tx: Transaction, ids: Collection[str]) -> int:
    """Delete them, and count them."""
    found = find_requests(tx, ids)
    tx.many("delete_request", [{"id": id_} for id_ in found])
    return len(found)


def _find_ids(answer: str) -> Iterator[str]:
    for outcome in read_answer(answer, None).outcomes:
        yield from filter(None, (outcome.id, *outcome.others, *outcome.marked))


def load_subjects(tx: Transaction, kind: SubjectKind) -> Iterator[Subject]:
    """Every session, source or item of a scope. A source may be known only by a call of a tool."""
    assert tx.scope is not None
    for (name,) in tx.rows({"session": "list_named_sessions", "source": "list_sources", "id": "list_ids"}[kind]):
        yield Subject(tx.scope, kind, name)
    if kind == "source":
        calls = (
            call for text, metadata in tx.rows("load_tool_calls") for call in read_calls(text, read_metadata(metadata))
        )
        addresses = {address for call in calls for address in find_addresses(call)}
        yield from (Subject(tx.scope, kind, name) for name in addresses)
