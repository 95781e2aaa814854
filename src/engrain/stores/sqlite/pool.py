"""Connections for reading, lent out and taken back."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from engrain.core.errors import EngrainError, StoreClosed
from engrain.stores.sqlite.connection import Connection

Answer = TypeVar("Answer")

_KEPT = 8
_PATIENCE = 10.0
_PAUSE = 0.001


class Moment:
    """A read transaction that is kept from one loan to the next, by one thread. It ends early if no connection may be
    open any more: before a fork, and when the store is closed."""

    __slots__ = ("kept", "lent")

    def __init__(self) -> None:
        self.kept: list[Connection] = []  # none while it is lent
        self.lent: Connection | None = None


class Loan:
    """A connection while one function uses it."""

    __slots__ = ("db", "moment", "over")

    def __init__(self, moment: Moment | None) -> None:
        self.moment = moment
        self.db: Connection | None = None
        self.over = False


class Pool:
    """No locks: each step is one operation of a list or a set, which a signal cannot interrupt."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._shut = False
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._idle: list[Connection] = []
        self._lent: set[Loan] = set()
        self._moments: set[Moment] = set()
        self._frozen = False

    def snapshot(self, fn: Callable[[Connection], Answer], moment: Moment | None = None) -> Answer:
        """Run `fn` in a read transaction: all that it reads belongs to one moment."""

        def read(db: Connection) -> Answer:
            if not db.in_transaction:
                db.run("begin")
            try:
                return fn(db)
            finally:
                if moment is None and db.in_transaction:
                    db.run("commit")

        return self._run(read, moment)

    def bare(self, fn: Callable[[Connection], Answer]) -> Answer:
        """Run `fn` outside any transaction, for a checkpoint."""
        return self._run(fn, None)

    def _run(self, fn: Callable[[Connection], Answer], moment: Moment | None) -> Answer:
        loan = Loan(moment)
        try:
            return fn(self._lend(loan))
        finally:
            # An interrupt can come before the call, but not before this: Python looks for signals at calls and loops.
            loan.over = True
            self._take_back(loan)

    def begin(self, moment: Moment) -> None:
        self._moments.add(moment)

    def end(self, moment: Moment) -> None:
        self._moments.discard(moment)
        _empty(moment.kept)

    def _lend(self, loan: Loan) -> Connection:
        self._lent.add(loan)
        # Counted first and asked then: whoever freezes or shuts asks in the other order.
        while self._frozen:
            self._lent.discard(loan)
            time.sleep(_PAUSE)
            self._lent.add(loan)
        if self._shut:
            raise StoreClosed("this store was closed. Open it again.")
        try:
            kept = loan.moment.kept if loan.moment else None
            loan.db = kept.pop() if kept else self._idle.pop()
        except IndexError:
            self.reclaim()
            loan.db = self._connect()
        if loan.moment:
            loan.moment.lent = loan.db
        return loan.db

    def _take_back(self, loan: Loan) -> None:
        try:
            db, loan.db = loan.db, None
            if db is None:
                return
            moment, going = loan.moment, self._shut or self._frozen
            if moment:
                moment.lent = None
            if moment in self._moments and moment and not going:
                moment.kept.append(db)
            # One that an interrupt has left in a transaction would hold its moment for ever.
            elif going or len(self._idle) >= _KEPT or db.in_transaction:
                db.close()
            else:
                self._idle.append(db)
        finally:
            self._lent.discard(loan)

    def reclaim(self) -> None:
        """Take back what an interrupted reader could not."""
        for loan in list(self._lent):
            if loan.over:
                with suppress(EngrainError):
                    self._take_back(loan)

    def _all_back(self, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while self._lent:
            self.reclaim()
            if self._lent and time.monotonic() >= ends:
                return False
            time.sleep(_PAUSE)
        return True

    def drain(self, seconds: float) -> bool:
        """Closes every connection that comes back within the time; False if some did not."""
        back = self._all_back(seconds)
        for connections in (self._idle, *(moment.kept for moment in list(self._moments))):
            _empty(connections)
        return back

    def freeze(self) -> None:
        """Before a fork: no connection is open, until thaw or renew."""
        self._frozen = True
        self.drain(_PATIENCE)

    def thaw(self) -> None:
        self._frozen = False

    def close(self) -> None:
        self._shut = True
        self.drain(_PATIENCE)


def _empty(connections: list[Connection]) -> None:
    while connections:
        with suppress(IndexError, EngrainError):
            connections.pop().close()
