"""Connections for reading, lent out and taken back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engrain.core.errors import StoreClosed
from engrain.stores.sqlite.engine import Connection

_KEPT = 8
_PATIENCE = 10.0


class Pool:
    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._shut = False
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._changed = threading.Condition()
        self._idle: list[Connection] = []
        self._lent = 0

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection inside a read transaction: all that is read belongs to one moment."""
        db = self._take()
        try:
            db.run("begin")
            try:
                yield db
            finally:
                if db.in_transaction:
                    db.run("commit")
        finally:
            self._give(db)

    @contextmanager
    def bare(self) -> Iterator[Connection]:
        """A connection outside any transaction, for a checkpoint."""
        db = self._take()
        try:
            yield db
        finally:
            self._give(db)

    def _take(self) -> Connection:
        with self._changed:
            if self._shut:
                raise StoreClosed("this store was closed. Open it again.")
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            with self._changed:
                self._lent -= 1
                self._changed.notify_all()
            raise

    def _give(self, db: Connection) -> None:
        with self._changed:
            self._lent -= 1
            keep = not self._shut and len(self._idle) < _KEPT
            if keep:
                self._idle.append(db)
            if not self._lent:
                self._changed.notify_all()
        if not keep:
            db.close()

    def drain(self, seconds: float) -> bool:
        """Closes every connection that comes back within the time; False if some did not."""
        with self._changed:
            back = self._changed.wait_for(lambda: not self._lent, seconds)
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()
        return back

    def freeze(self) -> None:
        """Before a fork: no connection is open, until thaw or renew."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._lent, _PATIENCE)
        idle, self._idle = self._idle, []
        for db in idle:
            db.close()

    def thaw(self) -> None:
        self._changed.release()

    def close(self) -> None:
        with self._changed:
            self._shut = True
        self.drain(_PATIENCE)
