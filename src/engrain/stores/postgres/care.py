"""Look after the store: say how it is, examine it, make its indexes anew, sweep out what was forgotten."""

from __future__ import annotations

from collections.abc import Iterator

from psycopg import sql

from engrain.core.errors import ReadOnlyStore, StoreError
from engrain.core.identity import Scope
from engrain.core.text.passages import index_words
from engrain.ports import Finding, StoreStatus
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.index_rows import word_count, write_words
from engrain.stores.postgres.link import Db, Timed
from engrain.stores.postgres.migrate import latest_version
from engrain.stores.postgres.near import NearIndexes
from engrain.stores.postgres.sql import load

_SQL = load("care.sql")
_BATCH = 500
# Where the bytes of a text, a name or a vector are.
_SWEPT = (
    "item", "source", "citation", "entity", "word", "embedding", "session", "summary", "episode", "raw_text", "trial",
    "scope", "progress", "request", "task", "step", "large_result", "snapshot", "event",
    "erasure",
)  # fmt: skip
_FIRST = "0" * 32
_SWEEP = "vacuum (index_cleanup on, truncate off) "
_LONG = 5.0  # seconds


class Care(Handle):
    large: int
    _near: NearIndexes

    def status(self, model: str | None = None) -> StoreStatus:
        ((items, standing, scopes, seq, unembedded, pending, size, hidden),) = self._reading(
            None, lambda db: db.rows(_SQL["status"], {"model": model})
        )
        return StoreStatus(
            backend="postgres",
            location=self._link.address.shown,
            schema=latest_version(),
            items=items,
            open_items=standing,
            scopes=scopes,
            bytes=size,
            seq=seq,
            unembedded=unembedded,
            purge_pending=bool(pending),
            hidden=hidden,
            details={"server": f"Postgres {self._version}", "in schema": self._link.address.schema},
        )

    # Examining

    def check(self) -> list[Finding]:
        return self._reading(
            None,
            lambda db: [
                *self._engine(db),
                *_schema(db),
                *_integrity(db),
                *_slots(db),
                *_walls(db),
                *_indexes(db),
                *_swept(db),
            ],
        )

    def _engine(self, db: Db) -> Iterator[Finding]:
        yield Finding("engine", "pass", f"Postgres {self._version}, schema {self._link.address.schema!r}")

    # Making anew

    def rebuild(self) -> int:
        if self._read_only:
            raise ReadOnlyStore(f"{self._link.address.shown} was opened read-only.")
        for (name,) in self._asked(None, _SQL["broken"]):
            # A search that wants it makes it anew.
            broken = sql.SQL("drop index concurrently if exists {}")
            statement = broken.format(sql.Identifier(self._link.address.schema, name))
            self._link.alone(lambda connection: connection.execute(statement))  # noqa: B023
        seen, last = 0, _FIRST
        while rows := self._reading(None, lambda db: db.rows(_SQL["scopes"], (last, _BATCH))):  # noqa: B023
            for id_, tenant, agent, user in rows:
                seen += self._rebuild_scope(Scope(tenant, agent, user))
                last = str(id_)
        return seen

    def _rebuild_scope(self, scope: Scope) -> int:
        seen = after = 0
        while True:
            # Batches of their own: other writers come in between.
            count, after = self._writing(scope, lambda db: self._rebuild_batch(db, scope, after))  # noqa: B023
            if not count:
                return seen
            seen += count

    def _rebuild_batch(self, db: Db, scope: Scope, after: int) -> tuple[int, int]:
        self._begin_write(db, scope)
        rows = db.rows(_SQL["texts"], (scope.id, after, _BATCH))
        if not rows:
            db.run(_SQL["misfits"], {"scope": scope.id})
            db.run(_SQL["recount_vectors"], {"scope": scope.id})
            return 0, after
        words = [(n, index_words(text, speaker, slot), retracted) for n, text, speaker, slot, retracted in rows]
        db.run(_SQL["drop_words"], (scope.id, [row[0] for row in rows]))
        write_words(db, scope.id, [(n, each) for n, each, retracted in words if not retracted])
        for n, each, _ in words:
            db.run(_SQL["recount"], (each.passages, word_count(each), scope.id, n))
        db.run(_SQL["renumber"], (scope.id,))
        return len(rows), rows[-1][0]

    # Sweeping

    def purge(self) -> bool:
        pending, age = self._reading(None, lambda db: db.rows(_SQL["pending"]), mode="look")[0]
        if not pending:
            return True
        if self._read_only or self._asked(None, _SQL["unswept"], (list(_SWEPT),)):
            return False
        ((held,),) = self._reading(None, lambda db: db.rows(_SQL["held"]), mode="look")
        if held is not None and held >= age:
            return False
        # A sweep of large tables takes longer than a caller waits, and goes on without him: others would stand in line
        # behind it, each with a connection of its own.
        ours = f"{_SWEEP}{sql.Identifier(self._link.address.schema).as_string()}."
        ((busy,),) = self._reading(None, lambda db: db.rows(_SQL["sweeping"], (ours, _LONG)), mode="look")
        if busy:
            return False
        try:
            self._link.alone(self._vacuum)
            if held is None and self._leavings():
                # Another session may have told of its dead rows only now, after they went.
                self._link.alone(self._vacuum)
        except StoreError:
            return False
        if held is None and self._leavings():
            return False
        self._writing(None, lambda db: db.run(_SQL["swept"], (pending,)))
        self._near.drop([name for (name,) in self._asked(None, _SQL["spare"], (self.large,))])
        return True

    def _vacuum(self, connection: Timed) -> None:
        schema = self._link.address.schema
        for table in _SWEPT:
            # Also what only indexes hold: names, and vectors.
            connection.execute(sql.SQL(_SWEEP + "{}").format(sql.Identifier(schema, table)))

    def _leavings(self) -> int:
        ((count,),) = self._reading(None, lambda db: db.rows(_SQL["leavings"], (list(_SWEPT),)), mode="look")
        return int(count)


def _schema(db: Db) -> Iterator[Finding]:
    ((found,),) = db.rows(_SQL["schema"])
    yield Finding("schema", "pass" if int(found) == latest_version() else "fail", f"version {found}")


def _integrity(db: Db) -> Iterator[Finding]:
    ((checksums,),) = db.rows(_SQL["checksums"])
    if checksums == "on":
        yield Finding("integrity", "pass", "the server has a checksum on every page, and checks it when it reads")
    else:
        why = "the server keeps no checksums, so that a damaged page is not noticed"
        yield Finding("integrity", "warn", why, "pg_checksums --enable, with the server stopped")


def _slots(db: Db) -> Iterator[Finding]:
    ((twice,),) = db.rows(_SQL["slots"])
    if twice:
        why = f"{twice:,} slots have two values that hold now"
        yield Finding("slots", "fail", why, "engrain slots shows them; engrain forget ID the one that is wrong")
    else:
        yield Finding("slots", "pass", "no slot has two values that hold now")


def _walls(db: Db) -> Iterator[Finding]:
    open_tables = [name for (name,) in db.rows(_SQL["walls"])]
    ((ignores,),) = db.rows(_SQL["role"])
    if open_tables:
        mend = "alter table … enable row level security; alter table … force row level security"
        yield Finding("walls", "fail", f"no row-level security on {', '.join(open_tables)}", mend)
    elif ignores:
        why = "this role ignores row-level security; the scope is still in every statement"
        yield Finding("walls", "warn", why, "connect as a role that is neither superuser nor BYPASSRLS")
    else:
        yield Finding("walls", "pass", "row-level security holds every row to its scope")


def _indexes(db: Db) -> Iterator[Finding]:
    (found,) = db.rows(_SQL["indexes"])
    named = (
        "items without words",
        "words without an item",
        "vectors without an item",
        "scopes whose vectors are miscounted",
        "indexes that are not valid",
    )
    wrong = [f"{count} {what}" for count, what in zip(found, named, strict=True) if count]
    if wrong:
        yield Finding("indexes", "fail", ", ".join(wrong), "engrain doctor --rebuild")
    else:
        yield Finding("indexes", "pass", "every item has its words, every vector its item")


def _swept(db: Db) -> Iterator[Finding]:
    unswept = [name for (name,) in db.rows(_SQL["unswept"], (list(_SWEPT),))]
    ((pending, _),) = db.rows(_SQL["pending"])
    if unswept:
        why = f"this role may not vacuum {unswept[0]!r} and others, so that what it forgets stays in the tables"
        mend = "engrain maintain as their owner; or, from Postgres 17 on, grant maintain on all tables in schema … to …"
        yield Finding("forgotten", "warn", why, mend)
    elif pending:
        why = "forgotten rows are still in the tables, because a reader may see them or no vacuum has run"
        yield Finding("forgotten", "warn", why, "end long transactions; the next purge sweeps them out")
