"""An open store: its connections, its clock, its closing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import EngrainError, ReadOnlyStore
from engrain.core.identity import IdSource, Scope, SortableIds
from engrain.stores.postgres.address import read_url
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.link import Db, Do, Link, Row
from engrain.stores.postgres.migrate import prepare
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.statistics import TableStatistics
from engrain.stores.preview import run_rolled_back
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Deferred
from engrain.stores.relational.episodes import Episodes
from engrain.stores.relational.erasure import Erasures
from engrain.stores.relational.outcomes import Outcomes
from engrain.stores.relational.scopes import hash_scope
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import UsageCounts

Answer = TypeVar("Answer")

_SQL = load("queries.sql")


class Handle:
    """Without a clock of its own the store goes by the server's, which is one for all machines."""

    def __init__(
        self, url: str, *, clock: Clock = system_clock, ids: IdSource | None = None, read_only: bool = False
    ) -> None:
        self._clock = None if clock is system_clock else clock
        self.ids: IdSource = ids or SortableIds()
        self._read_only = read_only
        self._closed = False
        self._link = Link(read_url(url))
        key, self._version = prepare(self._link, read_only)
        self.dialect = PostgresDialect(
            key,
            self._reading,
            self._writing,
            self._lock_scope,
            self._begin_write,
            self._add_scope,
            self._clock_micros,
            self._know_models,
            TableStatistics(self._link).count_writes,
            self._link.address.shown,
        )
        self.usage = UsageCounts(self.dialect, read_only)
        self.episodes = Episodes(self.dialect)
        self.outcomes = Outcomes(self.dialect)
        self.journal = Tasks(self.dialect)
        self.audit = Audit(self.dialect)
        self.erasing = Erasures(self.dialect, self.audit)

    # What the other parts of the store use

    @property
    def _key(self) -> bytes:
        return self.dialect.key

    def _reading(self, scope: Scope | None, do: Do[Answer], mode: str = "read") -> Answer:
        return self._link.read(scope, do, mode)

    def _asked(self, scope: Scope | None, sql: str, args: Any = None) -> list[Row]:
        """One question, there and back in one go."""
        return self._link.read(scope, lambda db: Deferred(db.ask(sql, args), list))

    def _writing(self, scope: Scope | None, do: Do[Answer], mode: str = "write") -> Answer:
        if self._read_only:
            self._link.opened()  # a closed store says that first
            raise ReadOnlyStore(f"{self._link.address.shown} was opened read-only. Open it without read_only to write.")
        return self._link.write(scope, do, mode)

    def together(self, do: Callable[[], Answer]) -> Answer:
        """What this thread reads and writes here in `do` is one transaction, which may be done twice."""
        known = dict(self.dialect.models)

        def anew() -> Answer:
            self.dialect.models = dict(known)  # those of a first try may be gone with it
            return do()

        try:
            return self._link.together(anew)
        except BaseException:
            self.dialect.models = known
            raise

    def preview(self, do: Callable[[], Answer]) -> Answer:
        self.usage.write_all()  # a write takes the counted uses along, and the rollback would lose them
        return run_rolled_back(self.together, do)

    def still(self, do: Callable[[], Answer]) -> Answer:
        return self._link.still(do)

    def _begin_write(self, db: Db, scope: Scope) -> tuple[int, int]:
        """The number of the scope's last change, and the time to record; from here on no other writes to the scope."""
        locked = db.ask(_SQL["lock_scope"], (scope.id,))
        began = db.ask(_SQL["begin_write"], (self._clock_micros(),))
        found = locked.fetchall()
        if not found:
            seq = self._lock_scope(db, scope)
            began = db.ask(_SQL["begin_write"], (self._clock_micros(),))
        else:
            seq = int(found[0][0])
        ((micros, _),) = began.fetchall()
        return seq, micros

    def _lock_scope(self, db: Db, scope: Scope) -> int:
        found = db.rows(_SQL["lock_scope"], (scope.id,))
        if not found:
            self._add_scope(db, scope)
            found = db.rows(_SQL["lock_scope"], (scope.id,))
        return int(found[0][0])

    def _add_scope(self, db: Db, scope: Scope) -> None:
        tx = self.dialect.over(db, scope)
        if tx.owner:
            tx.run("lock_shared", kind=".scopes", subject=tx.owner)
        db.run(_SQL["add_scope"], (scope.id, scope.tenant, scope.agent, scope.user))
        db.run(_SQL["adopt"], (scope.id, hash_scope(self._key, scope)))

    def _know_models(self, found: Mapping[str, int]) -> None:
        """In a transaction of its own: in that of a plan, the first of a model would hold up every other scope."""
        for key, dimension in found.items():
            if key not in self.dialect.models:
                row = (key, dimension)
                self._writing(None, lambda db: db.run(_SQL["add_model"], row), "repeat")  # noqa: B023
                ((number, known),) = self._reading(None, lambda db: db.rows(_SQL["model"], row[:1]))  # noqa: B023
                self.dialect.models[key] = number, known

    def _micros(self, db: Db, at: datetime | None = None) -> int:
        """The moment asked for, or now: the clock, or the newest time recorded by anybody if that is later."""
        if at is not None:
            return to_micros(at)
        ((now,),) = db.rows(_SQL["moment"], (self._clock_micros(),))
        return int(now)

    def _clock_micros(self) -> int | None:
        """None: the server's."""
        return None if self._clock is None else to_micros(self._clock())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Counts of use are no promise.
        with suppress(EngrainError):
            self.usage.write_all()
        self._link.close()
