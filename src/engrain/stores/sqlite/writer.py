"""Run the writes of all callers in one thread, and let one sync serve all that wait."""

from __future__ import annotations

import _thread
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from engrain.core.errors import EngrainError, OutcomeUnknown, StoreClosed, StoreError
from engrain.stores.sqlite.checksums import list_triggers
from engrain.stores.sqlite.connection import CLOSED, Connection
from engrain.stores.sqlite.lock import FileLock

Answer = TypeVar("Answer")
Work = Callable[[Connection], Any]

LOCK_SECONDS = 30.0
# A transaction is committed at this age or with this many members, even if more writes wait.
GROUP_SECONDS = 0.02
GROUP_MEMBERS = 256
_log = logging.getLogger("engrain")


class Write:
    """The work of one caller. Either the thread takes it, or its caller withdraws it."""

    __slots__ = ("_work", "alone", "answer", "done", "error", "request_id")

    def __init__(self, work: Work, alone: bool = False, request_id: str | None = None) -> None:
        self._work = [work]
        self.alone = alone  # outside any transaction
        self.request_id = request_id
        # Not an Event: its inner lock stays taken if a signal interrupts the caller at the wrong instant.
        self.done = threading.Lock()
        self.done.acquire()
        self.answer: Any = None
        self.error: BaseException | None = None

    def take(self) -> Work | None:
        """The work, for the first caller; None afterwards."""
        try:
            return self._work.pop()
        except IndexError:
            return None

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.done.release()

    def fail_with_group(self, cause: BaseException) -> None:
        error = _copy_error(cause)
        error.__cause__ = cause
        if isinstance(error, OutcomeUnknown):
            error.request_id = self.request_id
        self.fail(error)


class Hooks(Protocol):
    """Calls around a commit, made in the thread that writes."""

    def before_commit(self, db: Connection) -> None:
        """All members have run, and a row or a digest has changed."""

    def confirm_commit(self) -> None:
        """The commit is durable, and is acknowledged unless this raises a StoreError."""

    def after_commit(self, db: Connection) -> None:
        """The callers have their answers."""


class WriteQueue:
    """The connection that writes, the thread that uses it, and the callers that wait.

    The thread starts with the first write. It runs the waiting writes as one transaction with a savepoint for each, so
    that an error undoes one write alone. A signal handler runs in the main thread and never in this one, so nothing
    here has to survive an interrupt.

    A fork and a close let the thread finish the waiting writes and end it. After a fork, parent and child each start
    a thread with their next write. The thread does not keep an unused store alive.
    """

    def __init__(self, connect: Callable[[], Connection], lock: FileLock | None, hooks: Hooks) -> None:
        self._connect = connect
        self._lock = lock
        self._hooks = hooks
        self._db: Connection | None = None
        self._closed = False
        self.reset()

    def reset(self) -> None:
        """Return to the unused state, in a forked child that has none of the threads."""
        self._queue: SimpleQueue[object] = SimpleQueue()
        self._guard = threading.RLock()  # to start and stop the thread
        # The thread holds this lock while it runs, and ends when it takes the lock from the queue.
        self._running: threading.Lock | None = None
        # Held while the connection is in use: a store in memory reads with the same connection.
        self.access = threading.RLock()
        self._member: tuple[int, Connection] | None = None
        self._changes_before = 0

    # For callers

    def run(self, work: Callable[[Connection], Answer], request_id: str | None = None) -> Answer:
        """Run `work` in a transaction; it is durable when this returns.

        An interrupted caller withdraws work that has not begun. Work that has begun goes on, and the caller gets
        OutcomeUnknown from the interrupt.
        """
        return cast("Answer", self._wait_for(Write(work, request_id=request_id)))

    def run_alone(self, work: Callable[[Connection], Answer]) -> Answer:
        """Run `work` between two transactions. An interrupted caller leaves it to go on."""
        return cast("Answer", self._wait_for(Write(work, alone=True)))

    def run_each(
        self, calls: Sequence[tuple[Callable[[Connection], Answer], str | None]]
    ) -> list[Answer | EngrainError]:
        """Run several works, each with its request id, as `run` does: the answer or the error of each, in order.

        They are handed over at once, so that the thread takes them as one group. An error that is no EngrainError is
        raised after all have run."""
        writes = [Write(work, request_id=request_id) for work, request_id in calls]
        try:
            for write in writes:
                self._submit(write)
            for write in writes:
                write.done.acquire()
        except BaseException as interrupt:
            begun = [write for write in writes if write.take() is None]
            if not begun:
                raise
            raise _make_unknown(begun[-1].request_id, interrupt) from interrupt
        for write in writes:
            if write.error is not None and not isinstance(write.error, EngrainError):
                raise write.error
        return [write.answer if write.error is None else cast("EngrainError", write.error) for write in writes]

    def _wait_for(self, write: Write) -> object:
        try:
            self._submit(write)
            write.done.acquire()
        except BaseException as interrupt:
            if write.take() is not None or write.alone:
                raise
            raise _make_unknown(write.request_id, interrupt) from interrupt
        error, write.error = write.error, None
        if error is None:
            return write.answer
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    def current_transaction(self) -> Connection | None:
        """The connection, if this thread is inside a transaction."""
        member = self._member
        return member[1] if member and member[0] == threading.get_ident() else None

    def connection(self) -> Connection:
        """Open it if necessary. The caller holds `access`, or is the only one."""
        if self._db is None:
            if self._closed:
                raise StoreClosed(CLOSED)
            self._db = self._connect()
        return self._db

    def reopen(self) -> Connection:
        """Replace the connection; for work that runs alone."""
        if self._lock:  # a store in memory ends with its connection
            self.drop_connection()
        return self.connection()

    def drop_connection(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(EngrainError):  # all is committed; closing only makes a checkpoint
                db.close()

    # The thread's life

    def _submit(self, write: Write) -> None:
        self._queue.put(write)
        if self._running is None:
            self._start()
        # Checked last: closing sets the flag first, and then fails the writes that came in.
        if self._closed and write.take() is not None:
            write.fail(StoreClosed(CLOSED))

    def _start(self) -> None:
        with self._guard:
            queue, running = self._queue, threading.Lock()
            running.acquire()
            alive = weakref.ref(self, lambda _: queue.put(running))
            # Checked here, because a signal handler may have written. No call comes between these steps, so no
            # signal does. Turned down: threading.Thread, whose `start` can lose a lock to an interrupt.
            if self._running is None and not self._closed:
                self._running = running
                try:
                    _thread.start_new_thread(_serve, (alive, queue, running))
                except RuntimeError as exc:
                    self._running = None
                    raise StoreError(f"no thread could be started to write: {exc}.") from exc

    def _end_thread(self) -> None:
        running = self._running
        if running is not None:
            self._queue.put(running)
            with running:
                self._running = None

    def freeze(self, drop: bool) -> None:
        """Before a fork: finish the waiting writes, end the thread, and with `drop` close the connection."""
        self._guard.acquire()
        self._end_thread()
        self.access.acquire()
        if drop:
            self.drop_connection()

    def thaw(self) -> None:
        """After a fork, in the parent."""
        self._end_thread()  # an interrupt may have cut `freeze` short
        for lock in (self.access, self._guard):
            with suppress(RuntimeError):
                lock.release()
        if not self._queue.empty():
            self._start()

    def close(self) -> None:
        """Finish the waiting writes, end the thread and close the connection. Later writes get StoreClosed."""
        self._closed = True
        with self._guard:
            self._end_thread()
        with suppress(Empty):
            while True:
                write = self._queue.get_nowait()
                if isinstance(write, Write) and write.take() is not None:
                    write.fail(StoreClosed(CLOSED))
        with self.access:
            self.drop_connection()

    # In the thread

    def serve(self, following: object) -> object:
        """Run a write and those behind it, up to a lock that ends a thread, which is returned."""
        with self.access:
            while isinstance(following, Write):
                if following.alone:
                    self._run_alone(following)
                    following = self._next()
                else:
                    following = self._run_group(following)
        return following

    def _next(self) -> object:
        return None if self._queue.empty() else self._queue.get()  # only this thread takes entries

    def _run_alone(self, write: Write) -> None:
        work = write.take()
        if work is None:
            return
        try:
            write.answer = work(self.connection())
        except BaseException as error:  # noqa: BLE001  (its caller gets it)
            write.error = _drop_frame(error)
        with _log_errors():
            self.clear()
        write.done.release()

    def clear(self) -> None:
        """Undo a transaction that was left open, and release the lock."""
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.rollback()
        except EngrainError:
            self.drop_connection()  # it is unusable; the next write opens another
        finally:
            if self._lock:
                self._lock.release()

    def _run_group(self, first: Write) -> object:
        """Run it with the waiting writes as one transaction, and return the next entry that is no part of it."""
        try:
            db = self._begin()
        except BaseException as error:  # noqa: BLE001  (its callers get it)
            return self._refuse(first, error)
        members: list[Write] = []
        ends = time.monotonic() + GROUP_SECONDS
        following: object = first
        try:
            while isinstance(following, Write) and not following.alone:
                self._run_member(db, following, members)
                full = len(members) >= GROUP_MEMBERS or time.monotonic() >= ends
                following = None if full else self._next()
            self._commit(db, members)
        except BaseException as error:  # noqa: BLE001  (its callers get it)
            with _log_errors():
                self.clear()
            for write in members:
                write.fail_with_group(error)
        else:
            with _log_errors():
                self.clear()
            for write in members:
                write.done.release()
            with _log_errors():
                self._hooks.after_commit(db)
        return following

    def _begin(self) -> Connection:
        db = self.connection()
        if self._lock:
            self._lock.acquire(LOCK_SECONDS)
        try:
            db.add_triggers(list_triggers())
            db.begin_writing()
            self._changes_before = db.total_changes
        except BaseException:
            self.clear()
            raise
        return db

    def _refuse(self, first: Write, error: BaseException) -> object:
        """Fail all waiting writes: they would wait for the same failure again."""
        following: object = first
        while isinstance(following, Write) and not following.alone:
            if following.take() is not None:
                following.fail_with_group(error)
            following = self._next()
        return following

    def _run_member(self, db: Connection, write: Write, members: list[Write]) -> None:
        work = write.take()
        if work is None:
            return
        self._member = threading.get_ident(), db
        savepoint = None
        try:
            # The first is undone with the whole transaction, and so saves a copy of every page that it changes.
            savepoint = db.set_savepoint() if members else None
            write.answer = work(db)
            if savepoint is not None:
                db.run("release member")
        except BaseException as error:  # noqa: BLE001  (its caller gets it)
            undone = _undo_member(db, savepoint)
            write.fail(_drop_frame(error))
            if not undone:
                raise _copy_error(error) from None
        else:
            members.append(write)
        finally:
            self._member = None

    def _commit(self, db: Connection, members: list[Write]) -> None:
        if not members:
            db.rollback()
            return
        if db.total_changes != self._changes_before or db.differences:
            self._hooks.before_commit(db)
        db.commit()
        self._hooks.confirm_commit()


def _serve(alive: weakref.ref[WriteQueue], queue: SimpleQueue[object], running: threading.Lock) -> None:
    """The idle thread refers to the queue only, so that an unused store can be collected."""
    try:
        found: object = None
        while found is not running:
            found = queue.get()
            writer = alive()
            if writer is None:
                return
            found = writer.serve(found)
            del writer
    finally:
        running.release()


@contextmanager
def _log_errors() -> Iterator[None]:
    """Log an error that no caller waits for. The thread goes on, because others wait for it."""
    try:
        yield
    except Exception:  # noqa: BLE001
        _log.exception("the work around a commit failed")


def _undo_member(db: Connection, savepoint: int | None) -> bool:
    """False if the whole transaction is to be undone, or SQLite has done so: on a full disk, for example."""
    try:
        if db.in_transaction and savepoint is not None:
            db.undo(savepoint)
            return True
    except EngrainError:
        pass
    return False


def _copy_error(error: BaseException) -> StoreError:
    """An error for each write: a traceback belongs to one thread."""
    if isinstance(error, StoreError):
        return type(error)(str(error))
    return StoreError("the transaction failed, perhaps by another's write. Nothing was kept; repeat it.")


def _drop_frame(error: BaseException) -> BaseException:
    """Let the traceback begin in the caller's work, without a reference to the thread."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def _make_unknown(request_id: str | None, interrupt: BaseException) -> OutcomeUnknown:
    repeat = "Look for it before you repeat it."
    if request_id is not None:
        repeat = f"Repeat it with the same request_id ({request_id})."
    why = "the caller was interrupted while its write was under way, so it may or may not be durable."
    return OutcomeUnknown(f"{why} {repeat}", request_id, interrupt)
