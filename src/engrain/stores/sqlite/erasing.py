"""Erase a subject's rows from the store's file, stage by stage, and keep them out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound, OnHold
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import (
    ErasedSubject,
    Erasure,
    Hold,
    Impact,
    ReasonChoice,
    Subject,
    add_reason,
    find_owner,
    make_hold_error,
    remove_reasons,
    write_reasons,
)
from engrain.core.model.plans import Forget
from engrain.ports.erasure import NONE
from engrain.stores.relational.rows import read_hold, read_receipt
from engrain.stores.sqlite import pieces
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.copies import find_copies
from engrain.stores.sqlite.dialect import SqliteTransaction
from engrain.stores.sqlite.forget import forget, found
from engrain.stores.sqlite.part import add_counts, answered, counted, drop_requests, find, take_part
from engrain.stores.sqlite.remaining import remains
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work

if TYPE_CHECKING:
    from engrain.stores.sqlite.handle import Handle

_SQL = load("erasing.sql")
_QUERIES, _FORGET = load("queries.sql"), load("forget.sql")
OPEN, ERASING, HIDDEN, ERASED = range(4)
_CHUNK = 1 << 24
_OVERLAP = 64


def aside(key: bytes, scope: Scope) -> str:
    """The id of a scope that is shut: no reader finds it by its own."""
    return hash_keyed(key, "scope", scope.id)


class SqliteErasing:
    """A view of the store."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def mark(self, subject: Subject) -> str:
        return hash_keyed(self._store._key, *subject.parts())

    def aside(self, scope: Scope) -> str:
        return aside(self._store._key, scope)

    # What is in reach

    def reach(self, subject: Subject) -> Impact:
        return self._store.snapshot(lambda db: self._find_reach(db, subject))

    def _find_reach(self, db: Connection, subject: Subject) -> Impact:
        if subject.by == "user":
            return _reach_of(db, self._scopes(db, subject))
        number = self._store._scope(db, subject.scope)
        if number is None:
            return Impact()
        if subject.by == "id":
            return self._reach_of_item(db, subject, number)
        parts = find(db, number, subject)
        counts = counted(db, number, subject, parts)
        some = (subject.scope,) if any(counts.values()) else ()
        return Impact(counts, some, parts.gone, tuple(parts.lost_sources))

    def _reach_of_item(self, db: Connection, subject: Subject, number: int) -> Impact:
        asked, gone, spans = found(self._work(db, subject.scope, number), Forget(subject.name))
        ids = tuple(gone.values()) if asked else ()
        cut = len(spans.keys() - gone.keys())
        counts = {"item": len(ids), "cut": cut, "request": len(answered(db, number, ids))}
        return Impact(counts, (subject.scope,) if ids else (), ids)

    def pieces(self, subject: Subject | None) -> Iterator[bytes]:
        return iter(self._store.snapshot(lambda db: list(self._find_pieces(db, subject))))

    def _find_pieces(self, db: Connection, subject: Subject | None) -> Iterator[bytes]:
        if subject is None or subject.by == "user":
            numbers = [None] if subject is None else [row[0] for row in self._scopes(db, subject)]
            for number in numbers:
                yield from (text.encode() for text in pieces.texts(db, number))
                yield from pieces.vectors(db, number)
            return
        number = self._store._scope(db, subject.scope)
        if number is None:
            return
        if subject.by == "id":
            gone = self.closure(db, subject, number)
        else:
            yield subject.name.encode()
            known = {id_: n for n, id_, *_ in db.rows(_SQL["parts"], (number,))}
            gone = {known[id_]: id_ for id_ in find(db, number, subject).gone}
        yield from (id_.encode() for id_ in answered(db, number, gone.values()))
        yield from pieces.part(db, number, list(gone), subject.name if subject.by == "session" else None)

    # The stages

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        def write(db: Connection) -> Erasure | OnHold:
            running = db.rows(_SQL["erasing"], {"id": id})
            if running:
                return self._erasure(db, running[0])
            return self._refused(db, subject) or self._begun(db, id, subject, notes)

        answer = self._store.transaction(write)
        if isinstance(answer, OnHold):
            raise answer  # after the commit, because the refusal is on record
        return answer

    def _begun(self, db: Connection, id: str, subject: Subject, notes: Mapping[str, Any]) -> Erasure:
        if subject.by == "user":
            self._shut(db, self._scopes(db, subject), ERASING)
        scope = subject.scope
        names = {"tenant": scope.tenant, "agent": scope.agent, "user": scope.user, "name": subject.name}
        values = {"id": id, "mark": self.mark(subject), "by": subject.by, "at": self._moment(db)}
        db.run(_SQL["add_erasing"], {**values, "notes": json.dumps(dict(notes)), **names})
        return self._known(db, id)

    def _refused(self, db: Connection, subject: Subject) -> OnHold | None:
        """On record, and a user hidden, if there is a hold on whose it is."""
        user = subject if subject.by == "user" else find_owner(subject.scope)
        reasons = self._reasons(db, self.mark(user)) if user else ()
        if user is None or not reasons:
            return None
        mark = self.mark(subject)
        if subject.by == "user":
            self._shut(db, self._scopes(db, subject), HIDDEN)
            db.run(_SQL["hide"], (mark,))
        tx = self._store.dialect.over(db, None)
        self._store.audit.write(tx, "erase_refused", {"by": subject.by, "reasons": reasons}, mark)
        return make_hold_error(user, reasons, hides=subject.by == "user")

    def keep(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        values = {"id": id, "notes": json.dumps(notes), "prints": prints}
        self._store.transaction(lambda db: db.run(_SQL["keep"], values))

    def take(self, id: str) -> Erasure:
        import engrain.stores.sqlite.index.rows  # noqa: F401  (numpy: not while others wait for their turn)

        answer = self._store.transaction(lambda db: self._delete_rows(db, id))
        if isinstance(answer, OnHold):
            raise answer
        return answer

    def _delete_rows(self, db: Connection, id: str) -> Erasure | OnHold:
        erasure = self._known(db, id)
        if erasure.stage != "shut" or erasure.subject is None:
            return erasure
        refused = self._refused(db, erasure.subject)
        if refused is not None:
            db.run(_SQL["drop_erasing"], (id,))
            return refused
        counts, ids = self._taken(db, erasure.subject)
        # Of a part anything may be written from now on.
        at = to_micros(erasure.at) if erasure.by == "user" else self._moment(db)
        db.run(_SQL["taken"], {"id": id, "counts": json.dumps(counts), "ids": json.dumps(ids), "at": at})
        self._store._purge.mark(db)
        return self._known(db, id)

    def unname(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        return self._store.transaction(lambda db: self._delete_names(db, id, notes))

    def _delete_names(self, db: Connection, id: str, notes: Mapping[str, Any] | None) -> Erasure:
        erasure = self._known(db, id)
        if erasure.stage != "rows" or erasure.subject is None:
            return erasure
        if erasure.by == "user":
            for number, *_ in self._scopes(db, erasure.subject):
                db.run(_SQL["unname_scope"], (number,))
        db.run(_SQL["unname"], {"id": id, "notes": None if notes is None else json.dumps(notes)})
        self._store._purge.mark(db)
        return self._known(db, id)

    def left(self, erasure: Erasure) -> Mapping[str, int]:
        return self.left_of([erasure])[0]

    def left_of(self, erasures: Sequence[Erasure]) -> list[dict[str, int]]:
        """Of each, in one look."""
        return self._store.snapshot(lambda db: remains(self, db, erasures))

    def finish(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        def write(db: Connection) -> AuditEntry:
            erasure = self._known(db, id)
            values = {"mark": erasure.mark, "by": erasure.by, "at": to_micros(erasure.at), "receipt": id}
            db.run(_SQL["drop_erasing"], (id,))
            db.run(_SQL["add_erased"], values)
            return self._store.audit.write(self._store.dialect.over(db, None), "erase", receipt, erasure.mark)

        return self._store.transaction(write)

    def running(self) -> list[Erasure]:
        return self._store.snapshot(
            lambda db: [self._erasure(db, row) for row in db.rows(_SQL["erasing"], {"id": None})]
        )

    # What keeps it out

    def erased(self, subject: Subject) -> ErasedSubject | None:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["erased"], {"mark": self.mark(subject)}))
        return read_receipt(rows[0]) if rows else None

    def all_erased(self) -> list[ErasedSubject]:
        return [read_receipt(row) for row in self._store.snapshot(lambda db: db.rows(_SQL["erased"], {"mark": None}))]

    def barred(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        def look(db: Connection) -> list[bool]:
            number = self._store._scope(db, scope)
            if number is None:
                rows = db.rows(_SQL["aside"], (self.aside(scope),))
                number = rows[0][0] if rows else None
            work = self._work(db, scope, number or 0)
            digests = (work.digest("text", text) for text in texts)
            return [bool(db.rows(_QUERIES["tombstone"], (number, digest))) for digest in digests]

        return self._store.snapshot(look)

    def tombstones(self) -> Iterator[tuple[str, str]]:
        from engrain.stores.sqlite.replaying import tombstones

        return iter(self._store.snapshot(lambda db: list(tombstones(self, db))))

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        from engrain.stores.sqlite.replaying import replay

        return self._store.transaction(lambda db: replay(self, db, erased, tombstones))

    # Holds

    def hold(self, subject: Subject, reason: str) -> Hold:
        def write(db: Connection) -> Hold:
            mark = self.mark(subject)
            known = self._reasons(db, mark)
            reasons = add_reason(known, reason)
            if reasons != known:
                db.run(_SQL["keep_hold"], (mark, self._store._micros(db), write_reasons(reasons)))
                self._store.audit.write(self._store.dialect.over(db, None), "hold", {"reason": reason}, mark)
            return read_hold(db.rows(_SQL["hold"], {"mark": mark})[0])

        return self._store.transaction(write)

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        def write(db: Connection) -> bool:
            mark = self.mark(subject)
            known = self._reasons(db, mark)
            left = remove_reasons(subject, known, reason)
            if left == known:
                return False
            if left:
                db.run(_SQL["keep_hold"], (mark, 0, write_reasons(left)))
            else:
                self._end_hold(db, subject)
            for one in known:
                if one not in left:
                    self._store.audit.write(self._store.dialect.over(db, None), "release", {"reason": one}, mark)
            return True

        return self._store.transaction(write)

    def _reasons(self, db: Connection, mark: str) -> tuple[str, ...]:
        return next((read_hold(row).reasons for row in db.rows(_SQL["hold"], {"mark": mark})), ())

    def _end_hold(self, db: Connection, subject: Subject) -> None:
        db.run(_SQL["release"], (self.mark(subject),))
        for number, tenant, agent, user, shut in self._scopes(db, subject):
            if shut == HIDDEN:
                scope = Scope(tenant, agent, user)
                names = {"tenant": tenant, "agent": agent, "user": user}
                db.run(_SQL["reopen_scope"], {"id": scope.id, "n": number, **names})
                self._renumber(db, scope, number)

    def holds(self) -> list[Hold]:
        return [read_hold(row) for row in self._store.snapshot(lambda db: db.rows(_SQL["hold"], {"mark": None}))]

    def users(self) -> list[Subject]:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["named"]))
        scopes = [Scope(row[1], None, row[3]) for row in rows if row[4] in (OPEN, HIDDEN)]
        return [user for user in map(find_owner, dict.fromkeys(scopes)) if user]

    def held(self, scope: Scope) -> bool:
        user = find_owner(scope)
        if user is None:
            return False
        return bool(self._store.snapshot(lambda db: db.rows(_SQL["hold"], {"mark": self.mark(user)})))

    def hide(self, tx: SqliteTransaction, mark: str) -> None:
        """The scopes of a user who is known by the hash alone."""
        db = tx.db
        scopes = [row[:5] for row in db.rows(_SQL["named"]) if row[4] == OPEN]
        owned = [(find_owner(Scope(*row[1:4])), row) for row in scopes]
        self._shut(db, [row for user, row in owned if user and self.mark(user) == mark], HIDDEN)

    # The files

    def copies(self) -> list[str]:
        return [str(one) for one in find_copies(self._store._site, self._store._key)]

    def raw(self) -> Iterator[bytes]:
        return self._store._raw(_CHUNK, _OVERLAP)

    # Inside a transaction

    def _scopes(self, db: Connection, subject: Subject) -> list[Row]:
        return db.rows(_SQL["scopes_of"], {"user": subject.name, "tenant": subject.scope.tenant})

    def _moment(self, db: Connection) -> int:
        """Now; what is written afterwards comes later, even if the clock was set back or stands still."""
        at = self._store._micros(db)
        db.run(_SQL["pass"], {"at": at})
        return at

    def _shut(self, db: Connection, scopes: Sequence[Row], how: int) -> None:
        for number, tenant, agent, user, _ in scopes:
            db.run(_SQL["shut_scope"], {"id": self.aside(Scope(tenant, agent, user)), "state": how, "n": number})

    def _taken(self, db: Connection, subject: Subject) -> tuple[Mapping[str, int], Sequence[str]]:
        if subject.by == "user":
            return self.take_scopes(db, [row for row in self._scopes(db, subject) if row[4] != ERASED]), ()
        number = self._store._scope(db, subject.scope)
        if number is None:
            return {}, ()
        work = self._work(db, subject.scope, number)
        if subject.by == "id":
            outcome = forget(work, Forget(subject.name))
            gone = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
            requests = drop_requests(db, number, gone)
            counts = {"item": len(gone), "cut": len(outcome.marked), "request": requests}
            gone += outcome.marked
        else:
            counts, gone = take_part(work, subject)
        db.run(_QUERIES["set_counters"], {"seq": work.seq, "now": work.micros})
        return counts, gone

    def take_scopes(self, db: Connection, scopes: Sequence[Row]) -> Mapping[str, int]:
        """Every row of these scopes but their own."""
        total = dict(_reach_of(db, scopes).counts)
        for number, tenant, agent, user, *_ in scopes:
            work = self._work(db, Scope(tenant, agent, user), number)
            items = db.rows(_SQL["items"], (number,))
            db.many(
                _FORGET["add_tombstone"], [(number, work.digest("text", text), work.micros) for _, _, text in items]
            )
            db.many(_FORGET["add_gone"], [(work.mark(), number, n, id_) for n, id_, _ in items])
            pieces.drop(db, number)
            db.run(_QUERIES["set_counters"], {"seq": work.seq, "now": work.micros})
        return total

    def closure(self, db: Connection, subject: Subject, number: int) -> dict[int, str]:
        """What forgetting this item would remove, by number."""
        _, gone, _ = found(self._work(db, subject.scope, number), Forget(subject.name))
        return gone

    def _renumber(self, db: Connection, scope: Scope, number: int) -> None:
        """Every search and every index beside sees these items as changed."""
        work = self._work(db, scope, number)
        for n, _, _ in db.rows(_SQL["items"], (number,)):
            db.run(_SQL["changed"], (work.mark(), n))
        db.run(_QUERIES["set_counters"], {"seq": work.seq, "now": work.micros})

    def _work(self, db: Connection, scope: Scope, number: int) -> Work:
        ((seq, _),) = db.rows(_QUERIES["counters"])
        micros = self._store._micros(db)
        return Work(db, scope, number, from_micros(micros), micros, seq, self._store._key)

    def _known(self, db: Connection, id: str) -> Erasure:
        rows = db.rows(_SQL["erasing"], {"id": id})
        if not rows:
            raise NotFound(f"no erasure {id!r} is under way.")
        return self._erasure(db, rows[0])

    def _erasure(self, db: Connection, row: Row) -> Erasure:
        id_, mark, by, stage, at, tenant, agent, user, name, counts, ids, notes, prints = row
        subject = None if name is None else Subject(Scope(tenant, agent, user), by, name)
        scopes: tuple[Scope, ...] = ()
        if subject is not None:
            found = self._scopes(db, subject) if by == "user" else [(0, tenant, agent, user, 0)]
            scopes = tuple(Scope(*one[1:4]) for one in found)
        return Erasure(
            id_, mark, by, stage, from_micros(at), subject, scopes, json.loads(counts), tuple(json.loads(ids)),
            json.loads(notes), bytes(prints),
        )  # fmt: skip


def _reach_of(db: Connection, scopes: Sequence[Row]) -> Impact:
    total: dict[str, int] = {"scope": len(scopes)}
    for number, *_ in scopes:
        add_counts(total, pieces.counts(db, number))
    return Impact(total, tuple(Scope(*row[1:4]) for row in scopes))
