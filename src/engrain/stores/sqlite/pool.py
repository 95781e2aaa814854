"""Lend connections to readers, and take them back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from engrain.core.errors import EngrainError, StoreClosed
from engrain.stores.sqlite.connection import CLOSED, Connection, Permission

Answer = TypeVar("Answer")

_MAX_IDLE = 8
_WAIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.001


class Snapshot:
    """A read transaction that one thread keeps from one loan to the next.

    It ends early before a fork and when the store is closed: no connection may be open then."""

    __slots__ = ("idle", "lent")

    def __init__(self) -> None:
        self.idle: list[Connection] = []  # empty while it is lent
        self.lent: Connection | None = None


class Loan:
    """A connection while one function uses it, in a read transaction unless it is `bare`.

    The function is called between `Pool.lend` and `Pool.take_back`, which belongs in a finally clause:

        loan.over = True
        pool.take_back(loan)

    An interrupt can come before the call, but not before the first of these lines, so `reclaim` finds the loan.
    """

    __slots__ = ("bare", "db", "over", "snapshot")

    def __init__(self, snapshot: Snapshot | None = None, bare: bool = False) -> None:
        self.snapshot = snapshot
        self.bare = bare
        self.db: Connection | None = None
        self.over = False


class Pool:
    """No locks: each step is one operation of a list or a set, which a signal cannot interrupt."""

    def __init__(self, connect: Callable[[], Connection], allow: Permission) -> None:
        self._connect = connect
        self._allow = allow  # in a snapshot, by which a store is copied or exported
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Return to the unused state, in a forked child that has none of the threads."""
        self._idle: list[Connection] = []
        self._lent: set[Loan] = set()
        self._snapshots: set[Snapshot] = set()
        self._frozen = False

    def run_bare(self, fn: Callable[[Connection], Answer]) -> Answer:
        """Run `fn` outside any transaction, for a checkpoint."""
        loan = Loan(bare=True)
        try:
            return fn(self.lend(loan))
        finally:
            loan.over = True
            self.take_back(loan)

    def begin(self, snapshot: Snapshot) -> None:
        self._snapshots.add(snapshot)

    def end(self, snapshot: Snapshot) -> None:
        self._snapshots.discard(snapshot)
        _close_all(snapshot.idle)

    def lend(self, loan: Loan) -> Connection:
        self._lent.add(loan)
        # Counted first, then checked: freezing and closing do it in the other order.
        while self._frozen:
            self._lent.discard(loan)
            time.sleep(_PAUSE_SECONDS)
            self._lent.add(loan)
        if self._closed:
            raise StoreClosed(CLOSED)
        try:
            idle = loan.snapshot.idle if loan.snapshot else None
            known = bool(idle)
            loan.db = idle.pop() if idle else self._idle.pop()
        except IndexError:
            self.reclaim()
            loan.db = self._connect()
        if loan.snapshot:
            loan.snapshot.lent = loan.db
            if not known:
                loan.db.authorize(self._allow)  # nobody else gets it afterwards
        if not loan.bare and not loan.db.in_transaction:
            loan.db.run("begin")
        return loan.db

    def take_back(self, loan: Loan) -> None:
        try:
            db, loan.db = loan.db, None
            if db is None:
                return
            snapshot, closing = loan.snapshot, self._closed or self._frozen
            if snapshot:
                snapshot.lent = None
            elif db.in_transaction:
                with suppress(EngrainError):
                    db.run("commit")
            if snapshot in self._snapshots and snapshot and not closing:
                snapshot.idle.append(db)
            # A connection that an interrupt left in a transaction would hold its snapshot for ever.
            elif closing or len(self._idle) >= _MAX_IDLE or db.in_transaction:
                db.close()
            else:
                self._idle.append(db)
        finally:
            self._lent.discard(loan)

    def reclaim(self) -> None:
        """Take back connections that an interrupted reader could not return."""
        for loan in list(self._lent):
            if loan.over:
                with suppress(EngrainError):
                    self.take_back(loan)

    def drain(self) -> None:
        """Close every connection that comes back in time."""
        ends = time.monotonic() + _WAIT_SECONDS
        while self._lent and time.monotonic() < ends:
            self.reclaim()
            time.sleep(_PAUSE_SECONDS)
        for connections in (self._idle, *(snapshot.idle for snapshot in list(self._snapshots))):
            _close_all(connections)

    def freeze(self) -> None:
        """Before a fork: no connection is open, until thaw or reset."""
        self._frozen = True
        self.drain()

    def thaw(self) -> None:
        self._frozen = False

    def close(self) -> None:
        self._closed = True
        self.drain()


class ThreadReads(threading.local):
    """The snapshot, the pinned connection and the reads of the calling thread."""

    snapshot: Snapshot | None = None  # that it keeps from one loan to the next
    pinned: Loan | None = None  # of the block that it is in
    reads = False  # a store in memory

    def find_lent(self, pool: Pool) -> Connection | None:
        if self.pinned:
            return self.pinned.db or pool.lend(self.pinned)
        return self.snapshot.lent if self.snapshot else None

    @contextmanager
    def pin(self, pool: Pool) -> Iterator[None]:
        loan = Loan()
        try:
            self.pinned = loan
            yield
        finally:
            self.pinned = None
            loan.over = True
            pool.take_back(loan)


def _close_all(connections: list[Connection]) -> None:
    while connections:
        with suppress(IndexError, EngrainError):
            connections.pop().close()
