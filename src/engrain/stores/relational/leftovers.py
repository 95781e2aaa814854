"""Count the rows that are left of subjects that were erased."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.clock import to_micros
from engrain.core.identity import hash_keyed
from engrain.core.model.erasure import PART_KINDS, Erasure, Subject, find_owner, first_summary_version
from engrain.stores.relational.dialect import Transaction
from engrain.stores.relational.forget import count_part, load_subjects
from engrain.stores.relational.scopes import ScopeRow, add_counts, load_scopes


def count_leftovers(tx: Transaction, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
    """Rows by kind, for each erasure. Rows that were written since are not counted.

    Subjects are known by keyed hashes: each name in the store is hashed once and compared with all of them."""
    totals: list[dict[str, int]] = [_count_erased_rows(tx, one) for one in erasures]
    asked: dict[tuple[str, str], list[int]] = {}
    for n, one in enumerate(erasures):
        asked.setdefault((one.by, one.subject_hash), []).append(n)
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
        values = {"session": subject.name, "subject_hash": erasure.subject_hash, "at": at}
        add_counts(counts, dict(tx.rows("count_session_leftovers", **values, version=first_summary_version(at))))
    return counts
