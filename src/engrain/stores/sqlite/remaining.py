"""Count what is still there of subjects that were erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.erasure import PART_KINDS, Erasure, Subject, find_owner, first_summary_version
from engrain.stores.sqlite import pieces
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.part import add_counts, find, subjects
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load

if TYPE_CHECKING:
    from engrain.stores.sqlite.erasing import SqliteErasing

_SQL = load("erasing.sql")


def remains(erasing: SqliteErasing, db: Connection, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
    """Rows by kind, of each erasure. Their subjects are known as keyed hashes: each name that is there is hashed once
    and compared with all of them. What was written since is not counted."""
    totals: list[dict[str, int]] = [{} for _ in erasures]
    asked: dict[tuple[str, str], list[int]] = {}
    for n, one in enumerate(erasures):
        asked.setdefault((one.by, one.mark), []).append(n)
    kinds = {one.by for one in erasures}
    passed = pieces.passed_over(db) if "user" in kinds else {}
    for one, total in zip(erasures, totals, strict=True):
        add_counts(total, passed if one.by == "user" else {})
    for number, tenant, agent, user, *_ in db.rows(_SQL["named"]):
        scope = Scope(tenant, agent, user)
        parts = (one for by in PART_KINDS if by in kinds for one in subjects(db, scope, number, by))
        for subject in filter(None, (find_owner(scope) if "user" in kinds else None, *parts)):
            for n in asked.get((subject.by, erasing.mark(subject)), ()):
                add_counts(totals[n], _older(erasing, db, subject, number, erasures[n]))
    return totals


def _older(erasing: SqliteErasing, db: Connection, subject: Subject, number: int, one: Erasure) -> dict[str, int]:
    """From before it."""
    at = to_micros(one.at)
    if subject.by == "user":
        return pieces.counts(db, number) if db.rows(_SQL["older"], {"scope": number, "at": at}) else {}
    if subject.by == "id":
        ids = list(erasing.closure(db, subject, number).values())
    else:
        ids = list(find(db, number, subject).gone)
    counts = {"item": len(db.rows(_SQL["old_items"], {"ids": as_json(ids), "at": at}))}
    if subject.by == "session":
        values = {
            "scope": number,
            "session": subject.name,
            "mark": one.mark,
            "at": at,
            "version": first_summary_version(at),
        }
        add_counts(counts, dict(db.rows(_SQL["session_left"], values)))
    return counts
