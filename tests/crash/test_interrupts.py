"""An exception out of a signal handler, wherever it lands: the store stays usable and loses nothing acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from writing import SCOPE, add, assert_kept, assert_sound, texts

from engrain.core.errors import OutcomeUnknown, StoreBusy, StoreClosed
from engrain.core.model.plans import Forget, Plan
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.connection import Connection

HERE = str(Path(__file__).parent.parent.parent / "src" / "engrain" / "stores" / "sqlite")


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place where Python looks for signals: a function's entry, a call's end."""

    def __init__(self, number: int, files: tuple[str, ...] = (HERE,)) -> None:
        self.left = number
        self.files = files
        self.happened = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if self.happened or event not in ("call", "c_return") or not file.startswith(self.files):
            return
        self.left -= 1
        if self.left < 0:
            self.happened = True
            raise KeyboardInterrupt

    def during(self, work: Callable[[], object]) -> BaseException | None:
        """What it raised. Kept by the caller, as a debugger would: nothing is cleared up by its going."""
        sys.setprofile(self)
        try:
            work()
        except KeyboardInterrupt as exc:
            return exc
        except OutcomeUnknown as exc:
            return exc if isinstance(exc.__cause__, KeyboardInterrupt) else None
        finally:
            sys.setprofile(None)
        return None


def _in_thread(work: Callable[[], object]) -> object:
    """Within seconds, or the store hangs."""
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert done, "it hangs, or raised"
    return done[0]


def _everywhere(store: SqliteStore, work: Callable[[int], object], check: Callable[[int], object]) -> int:
    number = 0
    while True:
        interrupt = Interrupt(number)
        raised = interrupt.during(lambda: work(number))  # noqa: B023
        if not interrupt.happened:
            return number
        assert raised is not None, number
        check(number)
        deadline = time.monotonic() + 5  # the writer lets go after it has answered
        while store._lock is not None and store._lock.queue.holder is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert store._lock is None or store._lock.queue.holder is None
        del raised
        number += 1


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_write_interrupted_anywhere_is_kept_or_not_and_the_next_one_works(tmp_path: Path, where: str) -> None:
    store = SqliteStore(tmp_path / "store.db" if where == "file" else ":memory:")
    add(store, "warm")

    def check(number: int) -> None:
        _in_thread(lambda: add(store, f"other {number}"))
        add(store, f"interrupted {number}")

    count = _everywhere(store, lambda number: add(store, f"interrupted {number}"), check)
    assert count > 8
    found = texts(store)
    assert {f"{one} {number}" for one in ("other", "interrupted") for number in range(count)} <= set(found)
    assert len(found) == len(set(found))
    assert_sound(store)
    store.close()


def test_a_first_write_interrupted_while_the_thread_starts_hinders_nobody(tmp_path: Path) -> None:
    number, happened = 0, True
    while happened:
        store = SqliteStore(tmp_path / f"store{number}.db")
        interrupt = Interrupt(number, (HERE, threading.__file__))
        raised = interrupt.during(lambda: add(store, "first"))  # noqa: B023
        happened = interrupt.happened
        assert (raised is not None) == happened
        _in_thread(lambda: add(store, "second"))  # noqa: B023
        add(store, "first")
        assert sorted(texts(store)) == ["first", "second"]
        store.close()
        number += 1
    assert number > 15


def test_a_read_interrupted_anywhere_gives_its_connection_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    add(store, "one")

    def check(number: int) -> None:
        assert texts(store) == ["one"]
        store._pool.reclaim()
        assert not store._pool._lent
        assert not any(db.in_transaction for db in store._pool._idle)

    assert _everywhere(store, lambda number: texts(store), check) > 10
    assert not store._pool._lent, "closing would wait for it"
    store.close()


def test_a_forget_interrupted_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")

    def forget(number: int) -> None:
        store.apply(Plan(SCOPE, (Forget(add(store, f"PELICAN {number}")),)))
        store.purge()

    def check(number: int) -> None:
        add(store, f"next {number}")
        forget(number)
        assert store.purge()
        assert not store.status().purge_pending

    assert _everywhere(store, forget, check) > 20
    assert_sound(store)
    store.close()


def test_opening_interrupted_anywhere_leaves_the_file_to_others(tmp_path: Path) -> None:
    path, number, happened = tmp_path / "store.db", 0, True
    while happened:
        interrupt = Interrupt(number)
        raised = interrupt.during(lambda: SqliteStore(path).close())
        happened = interrupt.happened
        with _opened(path) as other:
            _in_thread(lambda: add(other, f"after {number}"))  # noqa: B023
        del raised
        number += 5
    assert number > 100


def test_closing_interrupted_anywhere_leaves_the_file_to_others(tmp_path: Path) -> None:
    path, number, happened = tmp_path / "store.db", 0, True
    while happened:
        store = SqliteStore(path)
        store.touch(SCOPE, [add(store, f"before {number}")])
        interrupt = Interrupt(number)
        raised = interrupt.during(store.close)
        happened = interrupt.happened
        with _opened(path) as other:
            _in_thread(lambda: add(other, f"after {number}"))  # noqa: B023
        del raised
        number += 1
    assert number > 25


@contextmanager
def _opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


@contextmanager
def _signalled(handler: Callable[[], object], seconds: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_write_that_has_begun_goes_on_and_its_caller_is_told_that_the_outcome_is_unknown(tmp_path: Path) -> None:
    store, begun = SqliteStore(tmp_path / "store.db"), threading.Event()

    def slow(db: Connection) -> None:
        begun.set()
        time.sleep(0.5)
        db.run("insert into meta (name, value) values ('slow', 1)")

    with _signalled(lambda: begun.wait(60) and _interrupt(), 0.05), pytest.raises(OutcomeUnknown, match="r1") as caught:
        store.transaction(slow, "r1")
    assert caught.value.request_id == "r1"
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    add(store, "next")
    assert store.snapshot(lambda db: db.rows("select value from meta where name = 'slow'")) == [(1,)]
    store.close()


def test_a_write_that_has_not_begun_is_withdrawn(tmp_path: Path) -> None:
    store, begun, go = SqliteStore(tmp_path / "store.db"), threading.Event(), threading.Event()

    def busy(db: Connection) -> None:
        begun.set()
        go.wait(60)

    other = threading.Thread(target=lambda: store.transaction(busy))
    other.start()
    assert begun.wait(60)
    with _signalled(_interrupt, 0.05), pytest.raises(KeyboardInterrupt):
        add(store, "never")
    go.set()
    other.join()
    add(store, "next")
    assert texts(store) == ["next"]
    store.close()


def test_a_signal_handler_may_write(tmp_path: Path) -> None:
    """It runs while the main thread waits for a write of its own."""
    store = SqliteStore(tmp_path / "store.db")
    for text in ("first", "second"):
        with _signalled(lambda: add(store, f"in the handler of the {text}"), 0.05):  # noqa: B023
            store.transaction(lambda db: time.sleep(0.2))
            add(store, text)
    assert len(texts(store)) == 4
    store.close()


def test_a_signal_handler_that_writes_while_a_store_in_memory_is_read_is_told_so() -> None:
    """It runs inside the read; waiting for that would be for ever."""
    store = SqliteStore(":memory:")
    with _signalled(lambda: add(store, "inside"), 0.05), pytest.raises(StoreBusy, match="signal handler"):
        store.snapshot(lambda db: time.sleep(5))
    assert add(store, "afterwards")
    store.close()


def test_who_waits_while_the_store_is_closed_is_answered(tmp_path: Path) -> None:
    store, begun, go = SqliteStore(tmp_path / "store.db"), threading.Event(), threading.Event()
    answers: list[object] = []

    def write(number: int) -> None:
        try:
            answers.append(add(store, f"text {number}"))
        except StoreClosed as closed:
            answers.append(closed)

    busy = threading.Thread(target=lambda: store.transaction(lambda db: (begun.set(), go.wait(60))))
    busy.start()
    assert begun.wait(60)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    closing = threading.Thread(target=store.close)
    closing.start()
    go.set()
    for thread in (*threads, busy, closing):
        thread.join(60)
        assert not thread.is_alive()
    assert len(answers) == 8
    with _opened(tmp_path / "store.db") as again:
        assert len(texts(again)) == sum(isinstance(one, str) for one in answers)


@pytest.mark.parametrize("instants", [100, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("others", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_signals_at_random_instants_lose_nothing_and_block_nobody(
    tmp_path: Path, others: int, instants: int, report_counts: Callable[..., None]
) -> None:
    path, notes = tmp_path / "store.db", tmp_path / "notes"
    words = [sys.executable, __file__, str(path), str(notes), str(others), str(instants)]
    done = subprocess.run(words, capture_output=True, timeout=500, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert len(notes.read_text().splitlines()) > instants / 4
    assert_kept(path, notes)
    report_counts(interrupts=instants)


def _interrupted(path: Path, notes: Path, others: int, instants: int) -> None:
    store, chance, stop = SqliteStore(path), random.Random(instants), threading.Event()
    add(store, "warm")
    took = []
    for number in range(21):
        began = time.monotonic()
        add(store, f"timed {number}")
        took.append(time.monotonic() - began)
    # Long enough for a few writes, however busy the machine is; one that the machine stood still for does not count.
    longest = sorted(took)[10] * 5
    acknowledged: list[str] = []

    def write() -> None:
        number = 0
        while not stop.is_set():
            add(store, f"thread {number}")
            acknowledged.append(f"thread {number}")
            number += 1

    def read() -> None:
        while not stop.is_set():
            texts(store)

    threads = [threading.Thread(target=work) for work in (write, read)[: 2 * others]]
    for thread in threads:
        thread.start()
    for number in range(instants):
        text, waited = "", len(acknowledged)
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0002, longest))
            for n in range(1000):
                text = f"main {number} {n}"
                add(store, text)
                acknowledged.append(text)
                store.get_many(SCOPE, [])
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
        except OutcomeUnknown as unknown:
            signal.setitimer(signal.ITIMER_REAL, 0)
            add(store, unknown.request_id or "")
            acknowledged.append(text)
        ends = time.monotonic() + 60
        while others and len(acknowledged) == waited:
            assert time.monotonic() < ends, "the other thread is blocked"
            time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    add(store, "last")
    found = texts(store)
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
    assert_sound(store)
    store.close()
    notes.write_text("\n".join(acknowledged))


if __name__ == "__main__":

    def _raise(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, _raise)
    _interrupted(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
