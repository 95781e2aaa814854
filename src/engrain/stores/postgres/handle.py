"""An open store: its connections, its parts and its closing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EngrainError
from engrain.core.identity import IdSource, SortableIds
from engrain.stores.postgres.address import read_url
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.link import Link
from engrain.stores.postgres.migrate import prepare
from engrain.stores.preview import run_rolled_back
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.episodes import Episodes
from engrain.stores.relational.erasure import Erasures
from engrain.stores.relational.outcomes import Outcomes
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import UsageCounts

Answer = TypeVar("Answer")


class Handle:
    def __init__(
        self, url: str, *, clock: Clock = system_clock, ids: IdSource | None = None, read_only: bool = False
    ) -> None:
        self.ids: IdSource = ids or SortableIds()
        self._read_only = read_only
        self._closed = False
        self._link = Link(read_url(url))
        key, self._version = prepare(self._link, read_only)
        self.dialect = PostgresDialect(self._link, key, clock, read_only)
        self.still = self._link.still
        self.usage = UsageCounts(self.dialect, read_only)
        self.episodes = Episodes(self.dialect)
        self.outcomes = Outcomes(self.dialect)
        self.journal = Tasks(self.dialect)
        self.audit = Audit(self.dialect)
        self.erasing = Erasures(self.dialect, self.audit)

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

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        # Counts of use are no promise.
        with suppress(EngrainError):
            self.usage.write_all()
        self._link.close()
