"""Remove a session, a source or an item from its scope, and count the rows that an erasure left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from engrain.core.clock import to_micros
from engrain.core.identity import hash_keyed
from engrain.core.model.erasure import (
    PART_KINDS,
    Erasure,
    Subject,
    SubjectKind,
    find_owner,
    first_summary_version,
)
from engrain.core.model.messages import read_calls
from engrain.core.model.plans import Forget
from engrain.core.rules.removal import (
    NO_TOOL_DERIVED,
    ItemLineage,
    MessageRow,
    RemovalPlan,
    SourceLineage,
    ToolDerived,
    escape_argument,
    find_addresses,
    find_tool_derived,
    plan_removal,
)
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import RemovableItem, find_removal, forget_item, remove_items
from engrain.stores.relational.rows import read_answer, read_metadata
from engrain.stores.relational.scopes import ScopeRow, add_counts, load_scopes

SESSION_TABLES = ("episode", "summary", "progress", "session")


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
        ids = tuple(one.id for one in found.items)
        cut = len(found.spans.keys() - {one.n for one in found.items})
        return {"item": len(ids), "cut": cut, "request": len(find_requests(tx, ids))}, ids, ()
    plan = find_part(tx, subject)
    return _count_plan(tx, subject, plan), tuple(plan.gone), tuple(plan.lost_sources)


def _count_plan(tx: Transaction, subject: Subject, plan: RemovalPlan) -> dict[str, int]:
    requests = find_requests(tx, plan.gone)
    counts = {"item": len(plan.gone), "source": len(plan.lost_sources), "request": len(requests)}
    if subject.by == "session":
        count = tx.dialect.statements["count_session_rows"]
        for table in SESSION_TABLES:
            ((counts[table],),) = tx.rows(count.fill(table=table), session=subject.name)
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
    delete_requests(tx, plan.gone)
    if subject.by == "session":
        delete = tx.dialect.statements["delete_session_rows"]
        for table in SESSION_TABLES:
            tx.run(delete.fill(table=table), session=subject.name)
    return counts, list(plan.gone)


def _apply_plan(tx: Transaction, plan: RemovalPlan, at: int) -> None:
    numbers = {row[1]: row[0] for row in tx.rows("load_item_lineage")}
    rows = tx.rows("load_removable", numbers=[numbers[id_] for id_ in plan.gone])
    remove_items(tx, [RemovableItem(*row) for row in rows], {numbers[id_] for id_ in plan.tombstoned}, at)
    for id_, lost in plan.lost_sources.items():
        for number in lost:
            tx.run("delete_source_citations", n=numbers[id_], number=number)
            tx.run("delete_source", n=numbers[id_], number=number)
        tx.run("store_trust", n=numbers[id_], trust=plan.trust[id_])
    for one in plan.restored:
        tx.run("reopen_item", n=numbers[one.id], valid_to=one.valid_to, replaced_by=one.replaced_by)
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
    for one in read_answer(answer, None).outcomes:
        yield from filter(None, (one.id, *one.others, *one.marked))


def load_subjects(tx: Transaction, kind: SubjectKind) -> Iterator[Subject]:
    """Every session, source or item of a scope. A source may be known only by a call of a tool."""
    assert tx.scope is not None
    for (name,) in tx.rows({"session": "list_named_sessions", "source": "list_sources", "id": "list_ids"}[kind]):
        yield Subject(tx.scope, kind, name)
    if kind == "source":
        calls = (
            call for text, metadata in tx.rows("load_tool_calls") for call in read_calls(text, read_metadata(metadata))
        )
        addresses = {one for call in calls for one in find_addresses(call)}
        yield from (Subject(tx.scope, kind, name) for name in addresses)


def count_leftovers(tx: Transaction, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
    """Rows by kind, for each erasure. Rows that were written since are not counted.

    Subjects are known by keyed hashes: each name in the store is hashed once and compared with all of them."""
    totals: list[dict[str, int]] = [_count_erased_rows(tx, one) for one in erasures]
    asked: dict[tuple[str, str], list[int]] = {}
    for n, one in enumerate(erasures):
        asked.setdefault((one.by, one.mark), []).append(n)
    kinds = {one.by for one in erasures}
    for row in load_scopes(tx):
        inside = tx.within(row.scope, row.key)
        parts = (one for kind in PART_KINDS if kind in kinds for one in load_subjects(inside, kind))
        owner = find_owner(row.scope) if "user" in kinds else None
        for subject in filter(None, (owner, *parts)):
            for n in asked.get((subject.by, hash_keyed(tx.dialect.key, *subject.parts())), ()):
                add_counts(totals[n], _count_older(inside, row, subject, erasures[n]))
    return totals


def _count_erased_rows(tx: Transaction, erasure: Erasure) -> dict[str, int]:
    """Rows that the erasure itself should have deleted."""
    if erasure.by != "user":
        return dict(tx.rows("count_index_orphans", ids=erasure.ids)) if erasure.ids else {}
    return _count_tables(tx, "count_erased_rows", [*erasure.ids, *(scope.id for scope in erasure.scopes)])


def _count_tables(tx: Transaction, statement: str, ids: Sequence[str]) -> dict[str, int]:
    """By the tables that the schema has. The list that the erasure goes by is what is to be checked."""
    count = tx.dialect.statements[statement]
    tables = [table for (table,) in tx.rows("list_scope_tables")]
    asked = {table: tx.ask(count.fill(table=table), ids=ids) for table in tables}
    return {table: int(found.fetchall()[0][0]) for table, found in asked.items()}


def _count_older(tx: Transaction, row: ScopeRow, subject: Subject, erasure: Erasure) -> dict[str, int]:
    """Rows of the subject from before its erasure."""
    at = to_micros(erasure.at)
    if subject.by == "user":
        return _count_tables(tx, "count_scope_rows", [row.scope.id]) if tx.rows("find_older_rows", at=at) else {}
    _, ids, kept = count_part(tx, subject)
    named = {"item": ids, "source": kept}
    counts = {kind: int(tx.rows("count_older_items", ids=some, at=at)[0][0]) for kind, some in named.items()}
    if subject.by == "session":
        values = {"session": subject.name, "subject_hash": erasure.mark, "at": at}
        add_counts(counts, dict(tx.rows("count_session_leftovers", **values, version=first_summary_version(at))))
    return counts
