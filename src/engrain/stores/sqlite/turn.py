"""Blocks of statements that have a connection to themselves, in turn, whatever interrupts them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType

from engrain.core.errors import StoreBusy
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.lease import ended

_NOW = (False,)
_BLOCK = (True,)
# How long one waits before it looks whether who has the turn is still there.
_PATIENCE = (0.1,)


class Mark:
    """Who has the turn. `guard` is called if the block is dropped while it has it."""

    __slots__ = ("frame", "guard", "thread", "took")

    def __init__(self, frame: FrameType | None) -> None:
        self.frame = frame
        self.thread = threading.get_ident()
        self.took: list[bool] = []
        self.guard: weakref.ref[Block] | None = None


class Turns:
    """One lock, and what to do for a block that could not do it itself: `settle` its leftovers, `finish` what waits."""

    def __init__(self, settle: Callable[[], None], finish: Callable[[], None]) -> None:
        self.settle = settle
        self._finish = finish
        self.lock = threading.Lock()
        self._freeing = threading.Lock()
        self.holder: Mark | None = None
        self.waiting: set[Mark] = set()

    def take(self, mark: Mark, joins: bool = False) -> None:
        """`joins`: the commit of who has the turn now may be left to us."""
        # Through map, the answer is in the list before a signal can come between the lock and its name.
        mark.took.extend(map(self.lock.acquire, _NOW))
        if not mark.took[-1]:
            self._check_nested(mark)
            try:
                if joins:
                    self.waiting.add(mark)
                while not mark.took[-1]:
                    mark.took.extend(map(self.lock.acquire, _BLOCK, _PATIENCE))
                    if not mark.took[-1]:
                        self._free(self.holder)
            finally:
                self.waiting.discard(mark)
        self.holder = mark

    def _check_nested(self, mark: Mark) -> None:
        holder = self.holder
        if holder and holder.thread == mark.thread and not self._free(holder):
            raise StoreBusy("this thread is inside a write already: a signal handler must not use the store.")

    def _free(self, holder: Mark | None) -> bool:
        """Takes the turn from a block that is over; the next one settles what it left. False if it is still held."""
        if holder is None or holder.frame is None:
            return holder is not self.holder
        if self._freeing.acquire(blocking=False):
            try:
                if self.holder is holder and ended(holder.frame):
                    self.holder = None
                    self.lock.release()
            finally:
                self._freeing.release()
        return self.holder is not holder

    def give_up(self, mark: Mark) -> None:
        """After an error, or an interrupt anywhere."""
        if not (mark.took and mark.took[-1]):
            self.visit()  # who saw us waiting may have left us the commit
            return
        try:
            self.settle()
            self._finish()
        finally:
            self.holder = None
            self.lock.release()

    def visit(self) -> None:
        """If nobody has the turn: settle and finish."""
        mark = Mark(None)
        try:
            mark.took.extend(map(self.lock.acquire, _NOW))
            if mark.took[-1]:
                self.settle()
                self._finish()
        finally:
            if mark.took and mark.took[-1]:
                self.lock.release()

    def check_left(self) -> None:
        """After the turn was given with the commit left to one who waits: was that one interrupted meanwhile?"""
        if not self.waiting:
            self.visit()

    def mine(self) -> bool:
        holder = self.holder
        return holder is not None and holder.thread == threading.get_ident() and not self._free(holder)

    def abandoned(self, guard: weakref.ref[Block]) -> None:
        """Nobody may come after it for long, and other processes wait."""
        holder = self.holder
        if holder and holder.guard is guard:
            holder.frame = None  # it may go on, but the block cannot
            self.holder = None
            self.lock.release()
            self.visit()

    def once(self, work: Callable[[], None]) -> None:
        """A block that needs no connection."""
        mark = Mark(sys._getframe())
        try:
            self.take(mark)
            self.settle()
            work()
        except BaseException:
            self.give_up(mark)
            raise
        self.holder = None
        self.lock.release()

    def freeze(self) -> None:
        self.take(Mark(None))
        self.settle()

    def thaw(self) -> None:
        if self.holder and self.holder.frame is None:
            self.holder = None
            self.lock.release()


class Block:
    """A with-block that has the turn; to be entered where it stands, not through an ExitStack."""

    __slots__ = ("__weakref__", "_mark", "_turns")
    joins = False

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._mark: Mark | None = None

    def begin(self) -> Connection:
        raise NotImplementedError

    def end(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def afterwards(self, error: BaseException | None) -> None:
        """Without the turn, once all is in order."""

    def __enter__(self) -> Connection:
        turns = self._turns
        mark = self._mark = Mark(sys._getframe(1))
        # Not `__del__`: that would run after every block, and swallow the interrupt that lands in it.
        mark.guard = weakref.ref(self, turns.abandoned)
        try:
            turns.take(mark, self.joins)
            turns.settle()
            return self.begin()
        except BaseException:
            turns.give_up(mark)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        turns = self._turns
        try:
            self.end(error)
        except BaseException:
            assert self._mark
            turns.give_up(self._mark)
            raise
        # Not in a function of its own: a signal could come before its first instruction.
        self._mark = turns.holder = None
        turns.lock.release()
        self.afterwards(error)
