"""Report how the store is, check it, rebuild its indexes, and remove the bytes of deleted rows."""

from __future__ import annotations

from psycopg import sql

from engrain.core.errors import ReadOnlyStore, StoreError
from engrain.core.identity import Scope
from engrain.core.model.queries import Finding, StoreStatus
from engrain.core.text.passages import index_words
from engrain.ports.storage import check_owners, check_slots
from engrain.stores.postgres.connection import TimedConnection
from engrain.stores.postgres.dialect import PostgresDialect, count_words, write_words
from engrain.stores.postgres.migrate import latest_version
from engrain.stores.postgres.vectors import MAX_DIMENSION, HnswIndexes
from engrain.stores.relational.dialect import Transaction

_BATCH = 500
# The tables that hold bytes of a text, a name or a vector.
_VACUUMED = (
    "item", "source", "citation", "entity", "word", "embedding", "session", "summary", "episode", "raw_text", "trial",
    "scope", "progress", "request", "task", "step", "large_result", "snapshot", "event", "record", "erasure",
)  # fmt: skip
_FIRST_SCOPE = "0" * 32
_VACUUM = "vacuum (index_cleanup on, truncate off) "
_LONG_VACUUM = 5.0  # seconds


class Health:
    dialect: PostgresDialect
    server_version: str
    large: int
    vector_indexes: HnswIndexes

    def status(self, model: str | None = None) -> StoreStatus:
        rows = self.dialect.ask(None, "load_status", model=model)
        items, open_items, scopes, change, unembedded, pending, size, hidden, records = rows[0]
        return StoreStatus(
            backend="postgres",
            location=self.dialect.database.address.shown,
            schema=latest_version(),
            items=items,
            open_items=open_items,
            scopes=scopes,
            bytes=size,
            seq=change,
            unembedded=unembedded,
            purge_pending=bool(pending),
            hidden=hidden,
            records=records,
            details={"server": f"Postgres {self.server_version}", "in schema": self.dialect.database.address.schema},
        )

    # Checks

    def check(self) -> list[Finding]:
        def do(tx: Transaction) -> list[Finding]:
            slots = check_slots(tx.rows("count_double_slots")[0][0])
            checks = (_check_schema, _check_integrity, _check_walls, _check_indexes, _check_forgotten)
            return [slots, *(found for check in checks if (found := check(tx)))]

        engine = f"Postgres {self.server_version}, schema {self.dialect.database.address.schema!r}"
        return [Finding("engine", "pass", engine), *self.dialect.read(None, do)]

    def deployment(self) -> list[Finding]:
        def do(tx: Transaction) -> list[Finding]:
            ((fsync, pages, commit, encrypted, local),) = tx.rows("load_server_settings")
            ((unowned, owned),) = tx.rows("count_owned_items")
            ((standby, read_only),) = tx.rows("find_write_block")
            blocked = _check_writable(standby, read_only)
            found = [_check_sync(fsync, pages, commit), _check_encryption(encrypted, local)]
            return [*found, check_owners(unowned, owned), *([blocked] if blocked else [])]

        return self.dialect.read(None, do)

    def search_state(self, scope: Scope) -> Finding:
        rows = self.dialect.ask(scope, "load_large_models", large=self.large, widest=MAX_DIMENSION)
        missing = sum(count for count, indexed in rows if not indexed)
        if missing:
            why = f"{missing:,} vectors have no index yet, so that every search compares them all"
            return Finding("search", "warn", why, "engrain recall starts to build it in a program that stays open")
        if rows:
            return Finding("search", "pass", f"{sum(count for count, _ in rows):,} vectors have an index of their own")
        return Finding("search", "pass", f"below {self.large:,} vectors all are compared; no index is needed")

    # Rebuilding

    def rebuild(self) -> int:
        if self.dialect.read_only:
            raise ReadOnlyStore(f"{self.dialect.database.address.shown} was opened read-only.")
        for (name,) in self.dialect.ask(None, "list_broken_indexes"):
            # A search that needs it builds it again.
            index = sql.Identifier(self.dialect.database.address.schema, name)
            statement = sql.SQL("drop index concurrently if exists {}").format(index)
            self.dialect.database.alone(lambda connection: connection.execute(statement))  # noqa: B023
        seen, last = 0, _FIRST_SCOPE
        while rows := self.dialect.ask(None, "list_scopes_with_items", after=last, limit=_BATCH):
            for key, *names in rows:
                seen += self._rebuild_scope(Scope(*names))
                last = str(key)
        return seen

    def _rebuild_scope(self, scope: Scope) -> int:
        """Each batch is a transaction of its own, so that other writers come in between."""
        seen = after = 0
        while True:
            count, after = self.dialect.write(scope, lambda tx: _rebuild_batch(tx, scope, after))  # noqa: B023
            if not count:
                return seen
            seen += count

    # Removing bytes

    def purge(self) -> bool:
        ((pending, age),) = self.dialect.read(None, lambda tx: tx.rows("load_pending_purges"), latest=True)
        if not pending:
            return True
        if self.dialect.read_only or self.dialect.ask(None, "list_unvacuumable_tables", tables=_VACUUMED):
            return False
        ((oldest,),) = self.dialect.read(None, lambda tx: tx.rows("find_oldest_snapshot"), latest=True)
        if oldest is not None and oldest >= age:
            return False
        # A vacuum of large tables takes longer than a caller waits, and goes on without the caller. Others would wait
        # behind it, each with a connection of its own.
        if self._is_vacuuming():
            return False
        try:
            self.dialect.database.alone(self._vacuum)
            if oldest is None and self._count_dead_rows():
                # Another session may have reported its dead rows only now.
                self.dialect.database.alone(self._vacuum)
        except StoreError:
            return False
        if oldest is None and self._count_dead_rows():
            return False
        self.dialect.write(None, lambda tx: tx.run("delete_pending_purges", pending=pending))
        unneeded = self.dialect.ask(None, "list_unneeded_indexes", large=self.large)
        self.vector_indexes.drop([name for (name,) in unneeded])
        return True

    def _is_vacuuming(self) -> bool:
        command = f"{_VACUUM}{sql.Identifier(self.dialect.database.address.schema).as_string()}."
        values = {"command": command, "seconds": _LONG_VACUUM}
        ((busy,),) = self.dialect.read(None, lambda tx: tx.rows("find_running_vacuum", **values), latest=True)
        return bool(busy)

    def _vacuum(self, connection: TimedConnection) -> None:
        for table in _VACUUMED:
            # Indexes too: they hold names and vectors.
            name = sql.Identifier(self.dialect.database.address.schema, table)
            connection.execute(sql.SQL(_VACUUM + "{}").format(name))

    def _count_dead_rows(self) -> int:
        rows = self.dialect.read(None, lambda tx: tx.rows("count_dead_rows", tables=_VACUUMED), latest=True)
        return int(rows[0][0])


def _rebuild_batch(tx: Transaction, scope: Scope, after: int) -> tuple[int, int]:
    """Rebuild the words of some items: how many, and the number of the last one."""
    tx.begin_write()
    rows = tx.rows("load_texts_to_index", after=after, limit=_BATCH)
    if not rows:
        tx.run("delete_misfit_vectors")
        tx.run("recount_vectors")
        return 0, after
    words = [(n, index_words(text, speaker, slot), retracted) for n, text, speaker, slot, retracted in rows]
    tx.run("delete_words", numbers=[row[0] for row in rows])
    write_words(tx, scope.id, [(n, each) for n, each, retracted in words if not retracted])
    for n, each, _ in words:
        tx.run("store_word_counts", n=n, passages=each.passages, words=count_words(each))
    tx.run("bump_last_change")
    return len(rows), rows[-1][0]


def _check_schema(tx: Transaction) -> Finding:
    ((found,),) = tx.rows("find_schema_version")
    return Finding("schema", "pass" if int(found) == latest_version() else "fail", f"version {found}")


def _check_integrity(tx: Transaction) -> Finding:
    ((checksums,),) = tx.rows("find_checksum_setting")
    if checksums == "on":
        return Finding("integrity", "pass", "the server has a checksum on every page, and checks it when it reads")
    why = "the server keeps no checksums, so that a damaged page is not noticed"
    return Finding("integrity", "warn", why, "pg_checksums --enable, with the server stopped")


def _check_walls(tx: Transaction) -> Finding:
    unprotected = [name for (name,) in tx.rows("list_unprotected_tables")]
    ((ignores,),) = tx.rows("find_role_bypass")
    if unprotected:
        fix = "alter table … enable row level security; alter table … force row level security"
        return Finding("isolation", "fail", f"no row-level security on {', '.join(unprotected)}", fix)
    if ignores:
        why = "this role ignores row-level security; the scope is still in every statement"
        return Finding("isolation", "warn", why, "connect as a role that is neither superuser nor BYPASSRLS")
    return Finding("isolation", "pass", "row-level security holds every row to its scope")


def _check_indexes(tx: Transaction) -> Finding:
    (found,) = tx.rows("count_index_errors")
    named = (
        "items without words",
        "words without an item",
        "vectors without an item",
        "scopes whose vectors are miscounted",
        "indexes that are not valid",
    )
    wrong = [f"{count} {what}" for count, what in zip(found, named, strict=True) if count]
    if wrong:
        return Finding("indexes", "fail", ", ".join(wrong), "engrain doctor --rebuild")
    return Finding("indexes", "pass", "every item has its words, every vector its item")


def _check_forgotten(tx: Transaction) -> Finding | None:
    tables = [name for (name,) in tx.rows("list_unvacuumable_tables", tables=_VACUUMED)]
    ((pending, _),) = tx.rows("load_pending_purges")
    if tables:
        why = f"this role may not vacuum {tables[0]!r} and others, so that what it forgets stays in the tables"
        fix = "engrain maintain as their owner; or, from Postgres 17 on, grant maintain on all tables in schema … to …"
        return Finding("forgotten", "warn", why, fix)
    if pending:
        why = "forgotten rows are still in the tables, because a reader may see them or no vacuum has run"
        return Finding("forgotten", "warn", why, "end long transactions; the next purge sweeps them out")
    return None


def _check_sync(fsync: str, pages: str, commit: str) -> Finding:
    settings = f"fsync {fsync}, full_page_writes {pages}, synchronous_commit {commit}"
    if "off" in (fsync, pages):
        why = f"a power cut may damage or lose the whole database ({settings})"
        return Finding("sync", "fail", why, "alter system set fsync = on; … full_page_writes = on; pg_reload_conf()")
    if commit == "off":
        why = f"a crash may lose the last acknowledged writes ({settings})"
        return Finding("sync", "fail", why, "alter role … reset synchronous_commit, or set it to on")
    return Finding("sync", "pass", f"every commit waits for the disk ({settings})")


def _check_writable(standby: bool, read_only: bool) -> Finding | None:
    if standby:
        why = "the server is a standby, which can only be read, so that nothing new is kept"
        return Finding("writable", "fail", why, "name the primary in the URL, or select pg_promote()")
    if read_only:
        why = "default_transaction_read_only is on, so that nothing new is kept"
        return Finding("writable", "fail", why, "alter database … reset default_transaction_read_only; or alter role …")
    return None


def _check_encryption(encrypted: bool, local: bool) -> Finding:
    if encrypted or local:
        way = "encrypted (TLS)" if encrypted else "on this machine"
        return Finding("encryption", "pass", f"the connection is {way}; at rest it is for the server's own disk")
    why = "the connection to the server is not encrypted, and goes over a network"
    return Finding("encryption", "warn", why, "add sslmode=verify-full to the URL; ssl = on in postgresql.conf")
