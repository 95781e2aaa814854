"""An exception out of a signal handler, wherever it lands: the store stays usable and loses nothing acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from writing import SCOPE, add, assert_kept, assert_sound, texts

from engrain.core.model.plans import Forget, Plan
from engrain.stores.sqlite import SqliteStore

HERE = str(Path(__file__).parent.parent.parent / "src" / "engrain" / "stores" / "sqlite")


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place where Python looks for signals: a function's entry, a call's end."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.happened = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        # Not the cleaning of pages: there are more of them with every round.
        if self.happened or event not in ("call", "c_return") or not file.startswith(HERE) or "scrub" in file:
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
        assert store._writer.turns.holder is None
        assert not store._lock or not store._lock.held
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
    assert count > 60
    found = texts(store)
    assert {f"{one} {number}" for one in ("other", "interrupted") for number in range(count)} <= set(found)
    assert len(found) == len(set(found))
    assert_sound(store)
    store.close()


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
        if number % 5 == 0:
            forget(number)
            assert store.purge()
            assert not store.status().purge_pending

    assert _everywhere(store, forget, check) > 100
    assert_sound(store)
    store.close()


def test_a_signal_handler_that_writes_is_told_so(tmp_path: Path) -> None:
    """It runs inside whatever it interrupts; waiting for that would be for ever."""
    from engrain.core.errors import StoreBusy

    store = SqliteStore(tmp_path / "store.db")
    with store._writing(), pytest.raises(StoreBusy, match="signal handler"):
        add(store, "inside")
    assert add(store, "afterwards")
    store.close()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("others", [0, 1])
def test_hundreds_of_signals_at_random_moments(tmp_path: Path, others: int, seed: int) -> None:
    path, notes = tmp_path / "store.db", tmp_path / "notes"
    words = [sys.executable, __file__, str(path), str(notes), str(others), str(seed)]
    done = subprocess.run(words, capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert len(notes.read_text().splitlines()) > 50
    assert_kept(path, notes)


def _interrupted(path: Path, notes: Path, others: int, seed: int) -> None:
    store, chance, stop = SqliteStore(path), random.Random(seed), threading.Event()
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
    for number in range(400):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0002, longest))
            for n in range(1000):
                add(store, f"main {number} {n}")
                acknowledged.append(f"main {number} {n}")
                store.get_many(SCOPE, [])
        except KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    for thread in threads:
        thread.join()
    add(store, "last")
    assert set(acknowledged) <= set(texts(store))
    assert_sound(store)
    store.close()
    notes.write_text("\n".join(acknowledged))


if __name__ == "__main__":

    def _raise(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, _raise)
    _interrupted(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
