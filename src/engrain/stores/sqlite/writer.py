"""Write transactions that several threads share, so that one sync serves all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from engrain.core.errors import EngrainError, OutcomeUnknown, StoreClosed, StoreError
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.lock import FileLock

LOCK_SECONDS = 30.0
# A group is closed when it is this old or this large, although more would like to join.
GROUP_SECONDS = 0.02
GROUP_MEMBERS = 256


class Group:
    """The members of one transaction that is not yet committed."""

    __slots__ = ("began", "done", "error", "members")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.members = 0
        self.done: threading.Event | None = None  # made when somebody has to wait
        self.error: EngrainError | None = None

    def tell(self) -> None:
        if self.done:
            self.done.set()

    def joinable(self) -> bool:
        return self.members < GROUP_MEMBERS and time.monotonic() - self.began < GROUP_SECONDS


class Hooks(Protocol):
    def before_commit(self, db: Connection) -> None:
        """Last statements of a transaction."""

    def after_commit(self, db: Connection) -> None:
        """All members know that they are durable."""

    def after_failure(self) -> None: ...


class Writer:
    """One connection on which threads take turns.

    A thread runs its own statements inside a savepoint. If another is waiting when it is done, it leaves the commit to
    that one and waits for it; the last in the row commits for all. Turned down: a writing thread, because of two
    hops between threads for each write, and a leader that runs the others' work, because their errors would then come
    up in the wrong thread.
    """

    def __init__(self, connect: Callable[[], Connection], lock: FileLock | None, hooks: Hooks) -> None:
        self._connect = connect
        self._lock = lock
        self._hooks = hooks
        self._db: Connection | None = None
        self._shut = False
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._group: Group | None = None

    @contextmanager
    def member(self) -> Iterator[Connection]:
        """Statements that happen together or not at all. If the block ends without an error, they are durable."""
        self._wait_for_turn()
        group = None
        try:
            db, group = self._joined()
            shared = group.members > 0  # else the transaction itself is the savepoint
            try:
                if shared:
                    db.run("savepoint member")
                yield db
                if shared:
                    db.run("release member")
                group.members += 1
            except BaseException as exc:
                self._undo(db, group, exc)
                raise
        finally:
            joined = self._leave(group)
        if joined:
            self._wait_for(joined)

    def _wait_for_turn(self) -> None:
        with self._counting:
            self._waiting += 1
        try:
            self._turn.acquire()
        except BaseException:
            # Who saw us waiting may have left us the commit.
            with self._counting:
                self._waiting -= 1
                took = self._turn.acquire(blocking=False)
            if took:
                self._leave(self._group)
            raise
        with self._counting:
            self._waiting -= 1

    def _joined(self) -> tuple[Connection, Group]:
        if self._shut:
            raise StoreClosed("this store was closed. Open it again.")
        if self._db is None:
            self._db = self._connect()
        if self._group is None:
            if self._lock:
                self._lock.acquire(LOCK_SECONDS)
            try:
                self._db.run("begin immediate")
            except BaseException:
                self._release()
                raise
            self._group = Group()
        return self._db, self._group

    def _undo(self, db: Connection, group: Group, cause: BaseException) -> None:
        """Takes back one member's statements; if SQLite has rolled back all (a full disk), the group has failed."""
        try:
            if group.members and db.in_transaction:
                db.run("rollback to member")
                db.run("release member")
                return
        except EngrainError as exc:
            cause = exc
        failed = StoreError("another write of the same transaction failed. Nothing was kept; repeat it.")
        self._fail(db, group, cause if isinstance(cause, StoreError) else failed)

    def _fail(self, db: Connection, group: Group, error: EngrainError) -> None:
        self._group = None
        group.error = error
        try:
            if db.in_transaction:
                db.run("rollback")
        except EngrainError:
            # A connection that cannot even roll back is of no use; the next member opens another.
            self._db = None
            db.close()
        finally:
            self._release()
            group.tell()
            self._hooks.after_failure()

    def _leave(self, group: Group | None) -> Group | None:
        """Commits, or leaves that to a thread that waits; the group that the caller still has to wait for."""
        pending = group if group is not None and self._group is group else None
        with self._counting:
            if pending and self._waiting and self._lock and pending.joinable():
                pending.done = pending.done or threading.Event()
                self._turn.release()
                return group
        try:
            if pending:
                self._commit(pending)
        finally:
            self._turn.release()
        return group

    def _commit(self, group: Group) -> None:
        db = self._db
        assert db is not None
        try:
            if group.members:
                self._hooks.before_commit(db)
                db.commit()
            else:
                db.run("rollback")
        except EngrainError as exc:
            self._fail(db, group, exc)
            return
        except BaseException:
            self._fail(db, group, OutcomeUnknown("the commit was interrupted. Repeat it with the same request_id."))
            raise
        self._group = None
        self._release()
        group.tell()
        self._hooks.after_commit(db)

    def _wait_for(self, group: Group) -> None:
        while group.done and not group.done.wait(1.0):
            # Nobody should be needed here; a lost hand-over must not hang a caller for ever.
            if self._turn.acquire(blocking=False):
                self._leave(group)
        if group.error:
            raise type(group.error)(str(group.error)) from group.error

    def _release(self) -> None:
        if self._lock:
            self._lock.release()

    @property
    def connection(self) -> Connection | None:
        return self._db

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """The connection outside any transaction, with no other thread on it."""
        with self._turn:
            if self._group:
                self._commit(self._group)
            if self._shut:
                raise StoreClosed("this store was closed. Open it again.")
            if self._db is None:
                self._db = self._connect()
            yield self._db

    @contextmanager
    def exclusive(self, seconds: float = LOCK_SECONDS) -> Iterator[Connection]:
        """`alone`, with every other process's writers kept out as well."""
        with self.alone() as db:
            if self._lock:
                self._lock.acquire(seconds)
            try:
                yield db
            finally:
                if self._db and self._db.in_transaction:
                    self._db.run("rollback")
                self._release()

    def reopen(self) -> Connection:
        """Another connection in place of this one, for whoever is `exclusive`."""
        if self._lock:  # a store in memory ends with its connection
            self._drop()
        if self._db is None:
            self._db = self._connect()
        return self._db

    def close(self) -> None:
        with self._turn:
            if self._group:
                self._commit(self._group)
            self._shut = True
            self._drop()

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(EngrainError):  # all is committed; what closing does besides is a checkpoint
                db.close()

    def freeze(self, drop: bool) -> None:
        """Before a fork: nobody is writing, and no connection is open, until thaw or renew."""
        self._turn.acquire()
        if self._group:
            self._commit(self._group)
        if drop:
            self._drop()

    def thaw(self) -> None:
        self._turn.release()
