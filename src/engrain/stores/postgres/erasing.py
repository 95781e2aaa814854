"""Erase a subject's rows on the server, stage by stage, and keep them out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import (
    ErasedSubject,
    Erasure,
    Hold,
    Impact,
    ReasonChoice,
    Subject,
    find_owner,
    find_subjects,
    make_hold_error,
)
from engrain.core.model.plans import Forget, Plan
from engrain.ports.erasure import NONE
from engrain.stores.postgres.forget import forget, found
from engrain.stores.postgres.holding import hold, reasons_of, release, users
from engrain.stores.postgres.late import is_clear, take_late
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.locks import hold_stays, holds_stay, scopes_stay
from engrain.stores.postgres.part import answered, counted, drop_requests, find, subjects, take_part
from engrain.stores.postgres.passed_over import add, left_of, passed_over, put_aside
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work
from engrain.stores.relational.rows import read_hold, read_receipt

if TYPE_CHECKING:
    import psycopg

    from engrain.stores.postgres.handle import Handle

_SQL, _QUERIES, _FORGET = load("erasing.sql"), load("queries.sql"), load("forget.sql")
# Every table with rows of a scope; those that others point to come last.
_TABLES = (
    "word", "embedding", "embedded", "source", "citation", "entity", "raw_text", "episode", "trial", "item", "session",
    "summary", "progress", "request", "step", "large_result", "snapshot", "task", "event",
)  # fmt: skip
_UNCOUNTED = ("word", "embedded", "citation", "entity")
ERASING, HIDDEN = 1, 2


def aside(key: bytes, scope: Scope) -> str:
    """The id under which nobody finds a scope."""
    return hash_keyed(key, "scope", scope.id)


class PostgresErasing:
    """A view of the store. It goes straight to the stage `rows`: nobody reads between the two."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def mark(self, subject: Subject) -> str:
        return hash_keyed(self._store._key, *subject.parts())

    # What is in reach

    def reach(self, subject: Subject) -> Impact:
        return self._store._reading(None, lambda db: self.reach_in(db, subject))

    def reach_in(self, db: Db, subject: Subject) -> Impact:
        if subject.by == "user":
            scopes = db.rows(_SQL["scopes_seen"], _names(subject))
            return Impact({"scope": len(scopes), **_counts(db, scopes)}, tuple(Scope(*row[1:4]) for row in scopes))
        if subject.by == "id":
            _, closure, spans = found(self._work(db, subject.scope), Forget(subject.name))
            gone = {row[0]: row[1] for row in closure}
            requests = answered(db, subject.scope.id, gone.values())
            counts = {"item": len(gone), "cut": len(spans.keys() - gone.keys()), "request": len(requests)}
            return Impact(counts, (subject.scope,) if gone else (), tuple(gone.values()))
        parts = find(db, subject)
        counts = counted(db, subject, parts)
        some = (subject.scope,) if any(counts.values()) else ()
        return Impact(counts, some, parts.gone, tuple(parts.lost_sources))

    def pieces(self, subject: Subject | None) -> Iterator[bytes]:
        """None: the server's files cannot be looked into from here."""
        return iter(())

    def copies(self) -> list[str]:
        return []

    def raw(self) -> Iterator[bytes]:
        return iter(())

    # The stages

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        user = subject if subject.by == "user" else find_owner(subject.scope)

        def do(db: Db) -> tuple[Erasure | None, tuple[str, ...]]:
            running = db.rows(_SQL["erasing"], {"id": id})
            if running:
                return _erasure(running[0]), ()
            reasons = self._reasons(db, user) if user else ()
            if subject.by == "user":
                scopes_stay(db, self.mark(subject))
            if reasons:
                if subject.by == "user":
                    self._hide(db, subject)
                details = {"by": subject.by, "reasons": reasons}
                self._store.audit.write(
                    self._store.dialect.over(db, None), "erase_refused", details, self.mark(subject)
                )
                return None, reasons
            return self._begun(db, id, subject, notes), ()

        begun, reasons = self._store._writing(None, do)
        if begun is None:
            raise make_hold_error(user or subject, reasons, hides=subject.by == "user")
        return begun

    def _begun(self, db: Db, id: str, subject: Subject, notes: Mapping[str, Any]) -> Erasure:
        scope = subject.scope
        scopes = db.rows(_SQL["scopes_of"], _names(subject)) if subject.by == "user" else []
        names = {"tenant": scope.tenant, "agent": scope.agent, "user": scope.user, "name": subject.name}
        values = {"id": id, "mark": self.mark(subject), "by": subject.by, "at": self._moment(db), **names}
        values["notes"] = json.dumps(dict(notes))
        listed = [list(row[1:4]) for row in scopes] if scopes else [[scope.tenant, scope.agent, scope.user]]
        db.run(_SQL["add_erasing"], {**values, "scopes": json.dumps(listed if subject.by != "user" or scopes else [])})
        ids: Sequence[str] = ()
        if subject.by == "user":
            counts = {"scope": len(scopes), **self.take_scopes(db, scopes)}
            db.run(_SQL["shut"], (ERASING, [row[0] for row in scopes]))
        else:
            counts, ids = self.take_part(db, subject)
        db.run(_SQL["taken"], {"id": id, "counts": json.dumps(counts), "ids": json.dumps(list(ids))})
        db.run(_FORGET["sweep_later"])
        return self._known(db, id)

    def keep(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        values = {"id": id, "notes": json.dumps(notes), "prints": prints}
        self._store._writing(None, lambda db: db.run(_SQL["keep"], values), "repeat")

    def take(self, id: str) -> Erasure:
        def do(db: Db) -> Erasure:
            erasure = self._known(db, id)
            if erasure.by == "user" and erasure.stage == "named":
                take_late(self, db, erasure)
            return self._known(db, id)

        return self._store._writing(None, do, "repeat")

    def unname(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        def do(db: Db) -> Erasure:
            scopes_stay(db, self._known(db, id).mark)
            erasure = self._known(db, id)
            if erasure.stage != "rows":
                return erasure
            hidden, at = list(erasure.ids), to_micros(erasure.at)
            if erasure.subject is not None and erasure.by == "user":
                # Where nothing is shut, because there was nothing or another erasure of this user has got here, what
                # came in since is new.
                rows = db.rows(_SQL["scopes_of"], _names(erasure.subject))
                hidden = self.unname_scopes(db, [Scope(*row[1:4]) for row in rows if row[4] == ERASING])
                # Whoever began to write while the erasure's first transaction was open may have seen a later time.
                at = self._moment(db) if hidden else at
            elif erasure.subject is not None and is_clear(self, db, erasure.subject):
                at = self._moment(db)
            kept = None if notes is None else json.dumps(notes)
            db.run(_SQL["unname"], {"ids": json.dumps(hidden), "at": at, "notes": kept, "id": id})
            db.run(_FORGET["sweep_later"])
            return self._known(db, id)

        return self._store._writing(None, do, "repeat")

    def left(self, erasure: Erasure) -> Mapping[str, int]:
        def do(db: Db) -> Mapping[str, int]:
            total: dict[str, int] = {}
            if erasure.by == "user":
                add(total, passed_over(db, [*erasure.ids, *(scope.id for scope in erasure.scopes)]))
            elif erasure.ids:
                add(total, dict(db.rows(_SQL["orphans"], {"ids": list(erasure.ids)})))
            for row in db.rows(_SQL["named"]):
                scope = Scope(*row[1:4])
                one = find_owner(scope)
                if erasure.by == "user" and one is not None and self.mark(one) == erasure.mark:
                    if db.rows(_SQL["older"], {"scope": scope.id, "at": to_micros(erasure.at)}):
                        add(total, passed_over(db, [scope.id]))
                elif erasure.by != "user":
                    for subject in subjects(db, scope, erasure.by):
                        if self.mark(subject) == erasure.mark:
                            add(total, left_of(db, self.reach_in(db, subject), subject, erasure))
            return total

        return self._store._reading(None, do)

    def finish(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        def do(db: Db) -> AuditEntry:
            erasure = self._known(db, id)
            values = {"mark": erasure.mark, "by": erasure.by, "at": to_micros(erasure.at), "receipt": id}
            db.run(_SQL["drop_erasing"], (id,))
            db.run(_SQL["add_erased"], values)
            return self._store.audit.write(self._store.dialect.over(db, None), "erase", receipt, erasure.mark)

        return self._store._writing(None, do)

    def running(self) -> list[Erasure]:
        rows = self._store._reading(None, lambda db: db.rows(_SQL["erasing"], {"id": None}))
        return [_erasure(row) for row in rows]

    # What keeps it out

    def erased(self, subject: Subject) -> ErasedSubject | None:
        return next(iter(self._erased(self.mark(subject))), None)

    def all_erased(self) -> list[ErasedSubject]:
        return self._erased(None)

    def _erased(self, mark: str | None) -> list[ErasedSubject]:
        rows = self._store._reading(None, lambda db: db.rows(_SQL["erased"], {"mark": mark}))
        return [read_receipt(row) for row in rows]

    def erased_since(self, db: Db, plan: Plan) -> psycopg.Cursor[Row]:
        """Asked once the scope is locked, read before the commit: it takes no time of its own."""
        marks = [self.mark(one) for one in find_subjects(plan)]
        return db.ask(_SQL["erased_since"], {"marks": marks, "began": plan.began})

    def barred(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        ids = (scope.id, aside(self._store._key, scope))

        def do(db: Db) -> list[bool]:
            work = self._work(db, scope)
            digests = [work.digest("text", text) for text in texts]
            entombed = {hash_ for (hash_,) in db.rows(_SQL["entombed"], (list(ids), digests))}
            return [one in entombed for one in digests]

        return self._store._reading(None, do)

    def tombstones(self) -> Iterator[tuple[str, str]]:
        from engrain.stores.postgres.replaying import tombstones

        return iter(self._store._reading(None, lambda db: tombstones(self, db)))

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        from engrain.stores.postgres.replaying import replay

        return self._store._writing(None, lambda db: replay(self, db, erased, tombstones))

    # Holds

    def hold(self, subject: Subject, reason: str) -> Hold:
        return self._store._writing(None, lambda db: hold(self, db, subject, reason))

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        return self._store._writing(None, lambda db: release(self, db, subject, reason))

    def end_hold(self, db: Db, subject: Subject) -> None:
        scopes_stay(db, self.mark(subject))
        db.rows(_SQL["release"], (self.mark(subject),))
        for id_, tenant, agent, user, shut in db.rows(_SQL["scopes_of"], _names(subject)):
            if shut == HIDDEN:
                scope = Scope(tenant, agent, user)
                self._move(db, id_, scope.id, 0)
                db.rows(_QUERIES["begin_write"], (self._store._clock_micros(),))
                db.run(_SQL["renumber"], (scope.id,))

    def holds(self) -> list[Hold]:
        return [read_hold(row) for row in self._store._reading(None, lambda db: db.rows(_SQL["hold"], {"mark": None}))]

    def users(self) -> list[Subject]:
        return self._store._reading(None, users)

    def held(self, scope: Scope) -> bool:
        rows = self._store._reading(None, lambda db: db.rows(_SQL["hold"], {"mark": self.user_mark(scope)}))
        return bool(rows)

    def user_mark(self, scope: Scope) -> str:
        """The keyed hash of the user whose scope it is; of no user none, which no hold has."""
        user = find_owner(scope)
        return self.mark(user) if user else ""

    # Inside a transaction

    def held_scopes(self, db: Db) -> list[str]:
        """Every name is hashed and compared, if there is a hold at all. Hidden or not: that may change."""
        holds_stay(db)
        marks = {mark for mark, *_ in db.rows(_SQL["hold"], {"mark": None})}
        named = [Scope(*row[1:4]) for row in db.rows(_SQL["named"])] if marks else []
        held = [scope for scope in named if self.user_mark(scope) in marks]
        return [id_ for scope in held for id_ in (scope.id, aside(self._store._key, scope))]

    def hide(self, db: Any, mark: str) -> None:
        """The scopes of a user who is known by the hash alone."""
        db = getattr(db, "db", db)
        named = [Scope(*row[1:4]) for row in db.rows(_SQL["named"])]
        for user in {Subject(Scope(one.tenant), "user", one.user) for one in named if one.user is not None}:
            if self.mark(user) == mark:
                self._hide(db, user)

    def unname_scopes(self, db: Db, scopes: Sequence[Scope]) -> list[str]:
        """The ids under which what keeps them out is put aside."""
        ids, hidden = [one.id for one in scopes], [aside(self._store._key, one) for one in scopes]
        for new, old in zip(hidden, ids, strict=True):
            db.rows(_SQL["put_aside"], (new, old))
        put_aside(db, hidden, ids)
        db.run(_SQL["drop_scopes"], (ids,))
        return hidden

    def hold_stays(self, db: Db, scope: Scope) -> None:
        """For what goes only if the user is not held: before the scope is locked."""
        hold_stays(db, self.user_mark(scope))

    def check_held(self, db: Db, scope: Scope) -> None:
        user = find_owner(scope)
        if user and (reasons := self._reasons(db, user)):
            raise make_hold_error(user, reasons)

    def _reasons(self, db: Db, user: Subject) -> tuple[str, ...]:
        hold_stays(db, self.mark(user))
        return reasons_of(db, self.mark(user))

    def _hide(self, db: Db, subject: Subject) -> None:
        for id_, tenant, agent, user, shut in db.rows(_SQL["scopes_of"], _names(subject)):
            if shut == 0:
                self._move(db, id_, aside(self._store._key, Scope(tenant, agent, user)), HIDDEN)
        db.run(_SQL["hide"], (self.mark(subject),))

    def _move(self, db: Db, old: str, new: str, shut: int) -> None:
        """All rows of a scope to another id, where nobody looks for them, or back."""
        db.run("set constraints all deferred")
        for table in (*_TABLES, "deleted_item", "tombstone"):
            db.run(f"update {table} set scope = %s where scope = %s", (new, old))
        db.run(_SQL["rename_scope"], {"new": new, "old": old, "state": shut})

    def take_scopes(self, db: Db, scopes: Sequence[Row]) -> dict[str, int]:
        total = _counts(db, scopes)
        for id_, tenant, agent, user, *_ in scopes:
            work = self._work(db, Scope(tenant, agent, user))
            hashes = [work.digest("text", text) for _, text in db.rows(_SQL["texts"], (id_,))]
            db.run(_SQL["entomb"], (id_, hashes, work.micros))
            db.rows(_QUERIES["begin_write"], (self._store._clock_micros(),))
            db.run(_SQL["add_all_gone"], (id_,))
            for table in _TABLES:
                db.run(f"delete from {table} where scope = %s", (id_,))
        return total

    def take_part(self, db: Db, subject: Subject) -> tuple[dict[str, int], list[str]]:
        work = self.begun_work(db, subject.scope)
        if subject.by == "id":
            outcome = forget(work, Forget(subject.name))
            gone = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
            requests = drop_requests(db, work.owner, gone)
            counts = {"item": len(gone), "cut": len(outcome.marked), "request": requests}
            ids = [*gone, *outcome.marked]
        else:
            counts, ids = take_part(work, subject)
        if work.changed:
            db.rows(_QUERIES["end_write"], (work.owner,))
        return counts, ids

    def _moment(self, db: Db) -> int:
        """Now; what is written afterwards comes later, even if the clock was set back or stands still."""
        at = self._store._micros(db)
        db.rows(_SQL["pass"], (at + 1,))
        return at

    def begun_work(self, db: Db, scope: Scope) -> Work:
        """For what changes the scope."""
        self._store._begin_write(db, scope)
        return self._work(db, scope)

    def _work(self, db: Db, scope: Scope) -> Work:
        micros = self._store._micros(db)
        return Work(db, scope.id, from_micros(micros), micros, self._store._key, self._store.dialect.models)

    def _known(self, db: Db, id: str) -> Erasure:
        rows = db.rows(_SQL["erasing"], {"id": id})
        if not rows:
            raise NotFound(f"no erasure {id!r} is under way.")
        return _erasure(rows[0])


def _names(subject: Subject) -> dict[str, str | None]:
    return {"user": subject.name, "tenant": subject.scope.tenant}


def _counts(db: Db, scopes: Sequence[Row]) -> dict[str, int]:
    ids = [row[0] for row in scopes]
    counted = (table for table in _TABLES if table not in _UNCOUNTED)
    sql = "select count(*) from {} where scope = any(%s::uuid[])"
    return {"vector" if one == "embedding" else one: db.rows(sql.format(one), (ids,))[0][0] for one in counted}


def _erasure(row: Row) -> Erasure:
    id_, mark, by, stage, at, tenant, agent, user, name, scopes, counts, ids, notes, prints = row
    subject = None if name is None else Subject(Scope(tenant, agent, user), by, name)
    return Erasure(
        id_, mark, by, stage, from_micros(at), subject, tuple(Scope(*one) for one in json.loads(scopes)),
        json.loads(counts), tuple(json.loads(ids)), json.loads(notes), bytes(prints),
    )  # fmt: skip
