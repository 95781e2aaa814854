"""Write transactions that several threads share, so that one sync serves all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from engrain.core.errors import EngrainError, OutcomeUnknown, StoreClosed, StoreError
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.turn import Block, Turns

LOCK_SECONDS = 30.0
# A group is closed when it is this old or this large, although more would like to join.
GROUP_SECONDS = 0.02
GROUP_MEMBERS = 256
# How long a member waits before it looks whether the thread that it left the commit to is still there.
_PATIENCE = 0.25


class Group:
    """The members of one transaction that is not yet committed."""

    __slots__ = ("began", "bells", "error", "members", "over")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.members = 0
        # One lock for each thread that waits: an Event's own lock is lost if a signal interrupts who waits for it.
        self.bells: list[threading.Lock] = []
        self.error: EngrainError | None = None
        self.over = False

    def bell(self) -> threading.Lock:
        bell = threading.Lock()
        bell.acquire()
        self.bells.append(bell)
        return bell

    def tell(self) -> None:
        while self.bells:
            self.bells.pop().release()

    def joinable(self) -> bool:
        return self.members < GROUP_MEMBERS and time.monotonic() - self.began < GROUP_SECONDS


class Hooks(Protocol):
    def before_commit(self, db: Connection) -> None:
        """Last statements of a transaction."""

    def committed(self) -> None:
        """The commit is durable, and is acknowledged unless this raises a StoreError."""

    def after_commit(self, db: Connection) -> None:
        """All members know that they are durable."""

    def after_failure(self) -> None: ...


class Member(Block):
    """Statements that happen together or not at all. If the block ends without an error, they are durable."""

    __slots__ = ("_bell", "_group", "_writer")
    joins = True

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.turns)
        self._writer = writer
        self._group: Group | None = None
        self._bell: threading.Lock | None = None

    def begin(self) -> Connection:
        db, self._group = self._writer.join()
        return db

    def end(self, error: BaseException | None) -> None:
        assert self._group is not None
        self._writer.end_member(self._group, error)
        self._bell = self._writer.leave(self._group)

    def afterwards(self, error: BaseException | None) -> None:
        group = self._group
        assert group is not None
        if error is not None:
            return
        if self._bell:
            self._writer.wait_for(group, self._bell)
        if group.error:
            raise type(group.error)(str(group.error)) from group.error


class Alone(Block):
    """The connection outside any transaction, with no other thread on it; `seconds` for no other process either."""

    __slots__ = ("_seconds", "_writer")

    def __init__(self, writer: Writer, seconds: float | None = None) -> None:
        super().__init__(writer.turns)
        self._writer = writer
        self._seconds = seconds

    def begin(self) -> Connection:
        db = self._writer.opened()
        if self._seconds is not None and self._writer.lock:
            self._writer.lock.acquire(self._seconds)
        return db

    def end(self, error: BaseException | None) -> None:
        self._writer.settle()


class Writer:
    """One connection on which threads take turns.

    A thread runs its own statements inside a savepoint. If another is waiting when it is done, it leaves the commit to
    that one and waits for it; the last in the row commits for all. Turned down: a writing thread, because of two
    hops between threads for each write, and a leader that runs the others' work, because their errors would then come
    up in the wrong thread.
    """

    def __init__(self, connect: Callable[[], Connection], lock: FileLock | None, hooks: Hooks) -> None:
        self._connect = connect
        self.lock = lock
        self._hooks = hooks
        self._db: Connection | None = None
        self._shut = False
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self.turns = Turns(self.settle, self.finish)
        self._group: Group | None = None
        self._inside = False  # a member's statements have begun and not ended

    def member(self) -> Member:
        return Member(self)

    def alone(self) -> Alone:
        return Alone(self)

    def exclusive(self, seconds: float = LOCK_SECONDS) -> Alone:
        return Alone(self, seconds)

    @property
    def connection(self) -> Connection | None:
        return self._db

    # With the turn

    def settle(self) -> None:
        """Whatever an interrupted block has left: its statements are undone, and what it held is given back."""
        db, group = self._db, self._group
        transaction = db is not None and db.in_transaction
        if group is None:
            if db is not None and transaction:
                self._roll_back(db)
            if self.lock and self.lock.held:
                self.lock.drop()
            self._inside = False
        elif not transaction:
            self._fail(group, OutcomeUnknown("the commit was interrupted. Repeat it with the same request_id."))
        elif self._inside:
            self._undo(group, StoreError("interrupted."))

    def finish(self) -> None:
        """After `settle`: others may have left their commit to us."""
        if self._group:
            self.leave(self._group)

    def _open(self) -> Connection:
        if self._shut:
            raise StoreClosed("this store was closed. Open it again.")
        if self._db is None:
            self._db = self._connect()
        return self._db

    def opened(self) -> Connection:
        if self._group:
            self._commit(self._group)
        return self._open()

    def join(self) -> tuple[Connection, Group]:
        db, group = self._open(), self._group
        if group is None:
            if self.lock:
                self.lock.acquire(LOCK_SECONDS)
            db.run("begin immediate")
            self._inside = True
            self._group = group = Group()
        else:
            self._inside = True
            db.run("savepoint member")  # the first needs none: the transaction itself is one
        return db, group

    def end_member(self, group: Group, error: BaseException | None) -> None:
        try:
            if error is None:
                if group.members and self._db:
                    self._db.run("release member")
                group.members += 1
                self._inside = False
                return
        except EngrainError as exc:
            self._undo(group, exc)
            raise
        self._undo(group, error)

    def _undo(self, group: Group, cause: BaseException) -> None:
        """Takes back one member's statements; if SQLite has rolled back all (a full disk), the group has failed."""
        db = self._db
        try:
            if group.members and db and db.in_transaction:
                db.run("rollback to member")
                db.run("release member")
                self._inside = False
                return
        except EngrainError as exc:
            if "no such savepoint" in str(exc):
                # Interrupted before its first statement, or after it was complete: there is nothing to take back.
                self._inside = False
                return
            cause = exc
        failed = StoreError("another write of the same transaction failed. Nothing was kept; repeat it.")
        self._fail(group, cause if isinstance(cause, StoreError) else failed)

    def _fail(self, group: Group, error: EngrainError) -> None:
        group.error = error
        group.over = True  # before it is no longer ours: who waits looks at both
        self._group = None
        self._inside = False
        try:
            if self._db and self._db.in_transaction:
                self._roll_back(self._db)
        finally:
            if self.lock:
                self.lock.drop()
            group.tell()
            self._hooks.after_failure()

    def _roll_back(self, db: Connection) -> None:
        try:
            db.run("rollback")
        except EngrainError:
            # A connection that cannot even roll back is of no use; the next member opens another.
            self._db = None
            db.close()

    def leave(self, group: Group) -> threading.Lock | None:
        """Commits, or leaves that to a thread that waits; then the bell on which to wait for it."""
        if self._group is not group:
            return None
        if self.turns.waiting and self.lock and group.joinable():
            return group.bell()
        self._commit(group)
        return None

    def _commit(self, group: Group) -> None:
        db = self._db
        assert db is not None
        try:
            if group.members:
                self._hooks.before_commit(db)
                db.commit()
            else:
                db.run("rollback")
            self._acknowledge(group)
        except EngrainError as exc:
            self._fail(group, exc)
            return
        except BaseException as exc:
            # The transaction has ended, and not by an error: the interrupt came after it.
            if not db.in_transaction and exc.__context__ is None and self._group is group:
                self._acknowledge(group)
            raise
        self._hooks.after_commit(db)

    def _acknowledge(self, group: Group) -> None:
        self._hooks.committed()
        group.over = True  # before it is no longer ours: who waits looks at both
        self._group = None
        if self.lock:
            self.lock.drop()
        group.tell()

    def reopen(self) -> Connection:
        """Another connection in place of this one, for whoever is `exclusive`."""
        if self.lock:  # a store in memory ends with its connection
            self._drop()
        return self._open()

    # Without the turn

    def wait_for(self, group: Group, bell: threading.Lock) -> None:
        self.turns.check_left()
        while not group.over and not bell.acquire(timeout=_PATIENCE):
            # Nobody should be needed here; a lost hand-over must not hang a caller for ever.
            self.turns.visit()

    def close(self) -> None:
        self.turns.once(self._close)

    def _close(self) -> None:
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
        self.turns.freeze()
        if self._group:
            self._commit(self._group)
        if drop:
            self._drop()

    def thaw(self) -> None:
        self.turns.thaw()
