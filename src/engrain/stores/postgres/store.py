"""The store on a Postgres server."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EngrainError
from engrain.core.identity import IdSource, Scope, SortableIds
from engrain.stores.postgres.connection import Database, read_url
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.health import Health
from engrain.stores.postgres.migrate import prepare
from engrain.stores.postgres.vectors import HnswIndexes, MeanVectors, VectorSearch
from engrain.stores.postgres.visibility import VisibilityCache
from engrain.stores.postgres.words import PostingsCache, WordSearch
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dump import Dump
from engrain.stores.relational.erasure import Erasures
from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.records import Records
from engrain.stores.relational.request_ids import Requests
from engrain.stores.relational.restore import Restore
from engrain.stores.relational.sessions import Episodes, Sessions
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import Outcomes, UsageCounts
from engrain.stores.relational.writes import ItemWrites


class PostgresStore(VectorSearch, WordSearch, Health, ItemReads, ItemWrites, Requests, Sessions, Dump, Restore):
    """One schema of one database, for any number of processes on any number of machines.

    With the system clock the store goes by the server's clock, which is one for all machines."""

    dialect: PostgresDialect

    def __init__(
        self, url: str, *, clock: Clock = system_clock, ids: IdSource | None = None, read_only: bool = False
    ) -> None:
        self.ids: IdSource = ids or SortableIds()
        self._closed = False
        self._database = Database(read_url(url))
        key, self.server_version = prepare(self._database, read_only)
        self.dialect = PostgresDialect(self._database, key, clock, read_only)
        self.in_transaction, self.on_snapshot = self.dialect.in_transaction, self._database.on_snapshot
        self.usage = UsageCounts(self.dialect, read_only)
        self.episodes = Episodes(self.dialect)
        self.outcomes = Outcomes(self.dialect)
        self.records = Records(self.dialect)
        self.journal = Tasks(self.dialect)
        self.audit = Audit(self.dialect)
        self.erasing = Erasures(self.dialect, self.audit)
        self.visibility = VisibilityCache()
        self.postings = PostingsCache()
        self.means = MeanVectors()
        self.vector_indexes = HnswIndexes(self._database)

    def pin_snapshot(self) -> AbstractContextManager[None]:
        """Do nothing: a transaction that spans calls would hold back the server's vacuum."""
        return nullcontext()

    def speakers(self, scope: Scope) -> frozenset[str]:
        return frozenset(name for (name,) in self.dialect.ask(scope, "list_speakers"))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Counts of use are no promise.
        with suppress(EngrainError):
            self.usage.write_all()
        self._database.close()
