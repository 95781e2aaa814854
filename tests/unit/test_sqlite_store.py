"""What the embedded store promises beyond the contracts: threads, times, counts of use, exact filters."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from engrain_conformance.drafts import append_messages
from examples import up_to
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engrain.core.errors import Conflict, DiskFull, NotFound, StoreBusy, StoreError
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter, matches_filter
from engrain.core.model.items import Draft, Item, SessionPosition, Vectors
from engrain.core.model.plans import Add, Applied, Change, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.text.passages import index_words
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.syntax import load_statements

SCOPE = Scope(user="ana")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def add(store: SqliteStore, text: str, **more: object) -> str:
    done = store.apply(Plan(SCOPE, (Add(Draft(text, words=index_words(text), **more)),)))  # type: ignore[arg-type]
    return done.outcomes[0].id or ""


def one(store: SqliteStore, id_: str) -> Item:
    return store.get_many(SCOPE, [id_])[0]


def in_threads(count: int, work) -> list[object]:  # type: ignore[no-untyped-def]
    """What each call gave or raised."""
    results: list[object] = [None] * count
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        ready.wait()
        try:
            results[number] = work(number)
        except Exception as exc:  # noqa: BLE001
            results[number] = exc

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    return results


# Threads


def test_a_member_that_fails_fails_alone(store: SqliteStore) -> None:
    """Good and bad writes share transactions; the bad ones leave nothing, not even their first steps."""

    def work(number: int) -> Applied:
        steps = [Add(Draft(f"text {number}"))]
        if number % 3 == 0:
            steps.append(Change("no such item", importance=0.1))  # type: ignore[arg-type]
        return store.apply(Plan(SCOPE, tuple(steps)))

    results = in_threads(24, work)
    assert [isinstance(result, NotFound) for result in results] == [number % 3 == 0 for number in range(24)]
    kept = {item.text for item in store.page(ListQuery(SCOPE))}
    assert kept == {f"text {number}" for number in range(24) if number % 3}
    seqs = [result.seq for result in results if isinstance(result, Applied)]
    assert len(set(seqs)) == len(seqs)


def test_eight_writers_leave_one_open_value(path: Path) -> None:
    stores = [SqliteStore(path) for _ in range(2)]
    in_threads(8, lambda number: [add(stores[number % 2], f"{number} {n}", slot="city") for n in range(5)])
    versions = stores[0].history(SCOPE, "city")
    assert len(versions) == 40
    assert sum(item.open for item in versions) == 1
    assert all(a.valid_to == b.valid_from for a, b in pairwise(versions))
    for store in stores:
        store.close()


def test_places_are_given_once(store: SqliteStore) -> None:
    in_threads(8, lambda number: [add(store, "same", kind="message", position=SessionPosition("s")) for _ in range(5)])
    assert [item.place for item in store.read(SCOPE, "s", 0, 100)] == list(range(40))


def test_readers_see_every_write_as_soon_as_it_is_acknowledged(path: Path) -> None:
    writer, reader = SqliteStore(path), SqliteStore(path)
    for number in range(50):
        assert one(reader, add(writer, f"text {number}")).text == f"text {number}"
    writer.close()
    reader.close()


def test_a_reader_never_sees_half_a_plan(path: Path) -> None:
    writer, reader = SqliteStore(path), SqliteStore(path)
    stop = threading.Event()
    odd: list[int] = []

    def read() -> None:
        while not stop.is_set():
            count = len(reader.page(ListQuery(SCOPE, limit=10_000)))
            if count % 2:
                odd.append(count)

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(100):
        writer.apply(Plan(SCOPE, (Add(Draft(f"a {number}")), Add(Draft(f"b {number}")))))
    stop.set()
    thread.join()
    assert odd == []
    writer.close()
    reader.close()


def test_an_interrupted_writer_leaves_the_others_unharmed(store: SqliteStore) -> None:
    class Stop(BaseException):
        pass

    def interrupted(db: Connection) -> None:
        db.run("insert into meta (name, value) values ('half', 1)")
        raise Stop

    with pytest.raises(Stop):
        store.transaction(interrupted)
    add(store, "next")
    assert store.snapshot(lambda db: db.rows("select 1 from meta where name = 'half'")) == []


# Locks


def test_a_lock_that_is_not_given_back_in_time_is_reported(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, time; from pathlib import Path; from engrain.stores.sqlite.lock import FileLock\n"
        "FileLock(Path(sys.argv[1])).acquire(180); print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        lock = FileLock(tmp_path / "lock")
        began = time.monotonic()
        with pytest.raises(StoreBusy, match=f"process {other.pid} held the store"):
            lock.acquire(0.2)
        assert time.monotonic() - began < 60
        other.kill()
        other.wait()
        lock.acquire(180)  # the dead hold nothing
        lock.release()
        lock.close()
    finally:
        other.kill()
        other.communicate()


def test_who_comes_again_does_not_pass_one_that_waits(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from pathlib import Path; from engrain.stores.sqlite.lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); print('asks', flush=True); lock.acquire(180)\n"
        "Path(sys.argv[2]).touch(); lock.release()"
    )
    path, was_in = tmp_path / "lock", tmp_path / "in"
    lock = FileLock(path)
    lock.acquire(180)
    other = subprocess.Popen([sys.executable, "-c", program, str(path), str(was_in)], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        assert other.stdout.readline() == b"asks\n"
        while not path.stat().st_size:  # it has taken a number
            assert other.poll() is None
            time.sleep(0.001)
        time.sleep(0.05)
        assert not was_in.exists()
        lock.release()
        lock.acquire(180)
        assert was_in.exists()
        lock.release()
        lock.close()
    finally:
        other.communicate()


def test_a_writer_that_meets_nobody_writes_no_number(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    for number in range(5):
        add(store, f"text {number}")
    assert not any((tmp_path / "store.db-lock").read_bytes()[:8])
    store.close()


# Closing, full disks, and files that go away


def test_closing_while_the_log_is_tidied_does_not_hang(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()
    monkeypatch.setattr(store._checkpointer, "_checkpoint", lambda: (begun.set(), go.wait(180)))
    store._checkpointer.request()
    assert begun.wait(180)
    stopping = threading.Thread(target=store._checkpointer.stop, daemon=True)
    stopping.start()
    time.sleep(0.05)
    go.set()
    stopping.join(180)
    assert not stopping.is_alive()


def test_a_checkpoint_that_fails_is_tried_again(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OSError(28, "no space left")

    monkeypatch.setattr(store._checkpointer, "_checkpoint", fail)
    for number in range(1, 4):
        store._checkpointer.request()
        ends = time.monotonic() + 180
        while len(calls) < number or store._checkpointer._requested:
            assert time.monotonic() < ends
            time.sleep(0.005)


def test_a_mark_set_while_another_is_purged_stays_pending(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The purge of one forget must not take the mark of the next for its own."""
    purge = store._purge
    first, second = add(store, "first"), add(store, "second")
    store.apply(Plan(SCOPE, (Forget(first),)))
    run_alone = store._writer.run_alone

    def then_forget(work: Callable[[Connection], object]) -> object:
        """Another thread forgets right after the first purge has let go of the file."""
        answer = run_alone(work)
        store.apply(Plan(SCOPE, (Forget(second),)))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(store._writer, "run_alone", then_forget)
        purge.run()
    assert purge.pending
    assert store.purge()
    assert not purge.pending


def test_cleaning_goes_on_where_its_time_ended(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.stores.sqlite.purge.SLICE_SECONDS", 0.0)
    monkeypatch.setattr("engrain.stores.sqlite.purge.CHUNK_PAGES", 4)
    ids = [add(store, f"PELICAN {number} " + "x" * 3000) for number in range(30)]
    store.apply(Plan(SCOPE, tuple(Forget(id_) for id_ in ids)))
    assert not store._purge.run()
    assert store._purge.pending
    first = store._purge._cleaned[1]
    assert not store._purge.run()
    assert store._purge._cleaned[1] > first > 0
    assert store.purge()
    assert not store.status().purge_pending


def test_pages_that_may_be_another_kind_are_left_alone() -> None:
    from engrain.stores.sqlite.purge import find_tree_bytes

    plain, vacuumed = bytes(100), bytes(52) + b"\0\0\0\x07" + bytes(44)
    assert find_tree_bytes(plain, 1000) == {2, 5, 10, 13}
    assert find_tree_bytes(plain, 2 << 24) == {5, 10, 13}
    assert find_tree_bytes(plain, 200 << 24) == frozenset()
    assert find_tree_bytes(vacuumed, 1000) == {10, 13}


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_goes_away_is_told_and_not_made_anew(path: Path, store: SqliteStore, how: str) -> None:
    add(store, "kept")
    path.unlink()
    if how == "replaced":
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="removed or replaced while open"):
        add(store, "lost")
    store._pool.drain()
    with pytest.raises(StoreError, match="removed or replaced while open"):
        store.page(ListQuery(SCOPE))
    assert path.exists() == (how == "replaced")
    assert how == "removed" or path.stat().st_size == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    import subprocess

    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    with file.open("ab", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            return


def test_opening_on_a_full_disk_says_so_and_works_when_there_is_space(small_disk: Path) -> None:
    old, new = small_disk / "old.db", small_disk / "new.db"
    store = SqliteStore(old)
    add(store, "kept")
    store.close()
    (small_disk / "old.db-lock").unlink()
    fill(small_disk / "fill")
    for path in (old, new, old, new):
        with pytest.raises(DiskFull):
            add(SqliteStore(path), "too much")
    (small_disk / "fill").unlink()
    for path in (old, new):
        store = SqliteStore(path)
        add(store, "enough room")
        assert "enough room" in {item.text for item in store.page(ListQuery(SCOPE))}
        assert "kept" in {item.text for item in store.page(ListQuery(SCOPE))} or path == new
        store.close()


# Times


def test_times_never_run_backwards(path: Path) -> None:
    times = [datetime(2030, 1, 1, tzinfo=UTC)]
    store = SqliteStore(path, clock=lambda: times[0])
    first = one(store, add(store, "first", slot="s"))
    times[0] -= timedelta(days=3650)
    second = one(store, add(store, "second", slot="s"))
    assert second.recorded_at >= first.recorded_at
    assert [item.text for item in store.slots(SCOPE, "s", None)] == ["second"]
    behind = SqliteStore(path, clock=lambda: times[0])
    assert [item.text for item in behind.slots(SCOPE, "s", None)] == ["second"]
    assert [item.text for item in behind.page(ListQuery(SCOPE))] == ["second"]
    behind.close()
    store.close()


# Counts of use


def test_uses_are_seen_at_once_and_written_with_the_next_commit(path: Path, store: SqliteStore) -> None:
    used = add(store, "used")
    other = SqliteStore(path)
    store.touch(SCOPE, [used, used, "unknown"])
    store.touch(SCOPE, [used])
    assert one(store, used).access_count == 2
    assert one(other, used).access_count == 0
    add(store, "another")
    assert one(other, used).access_count == 2
    assert one(store, used).access_count == 2
    assert one(other, used).last_accessed is not None
    other.close()


def test_uses_are_written_when_the_store_is_closed(path: Path) -> None:
    store = SqliteStore(path)
    used = add(store, "used")
    store.touch(SCOPE, [used])
    store.close()
    again = SqliteStore(path)
    assert one(again, used).access_count == 1
    again.close()


def test_uses_survive_a_commit_that_fails(store: SqliteStore) -> None:
    used = add(store, "used")
    store.touch(SCOPE, [used])
    with pytest.raises(NotFound):
        store.apply(Plan(SCOPE, (Change("unknown", importance=0.1),)))
    assert one(store, used).access_count == 1
    add(store, "good")
    assert one(store, used).access_count == 1


# Filters

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans()


@settings(max_examples=up_to(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    stored=st.lists(numbers, min_size=1, max_size=6), asked=numbers, operator=st.sampled_from(["=", "!=", "<", ">="])
)
def test_numbers_in_metadata_compare_exactly(
    store: SqliteStore, stored: list[float], asked: float, operator: str
) -> None:
    if isinstance(asked, bool) and operator in ("<", ">="):
        operator = "="
    ids = [add(store, f"{time.monotonic_ns()} {n}", metadata={"k": n}) for n in stored]
    # Ties on the last bit are where a database that reads decimals carelessly goes wrong.
    values = [asked, *stored]
    for value in values:
        where = Filter((Condition("metadata.k", operator, value),))
        if isinstance(value, bool) and operator in ("<", ">="):
            continue
        found = {item.id for item in store.page(ListQuery(SCOPE, where=where, limit=100_000))} & set(ids)
        assert found == {item.id for item in store.get_many(SCOPE, ids) if matches_filter(where, item)}


# Maintenance


def test_rebuild_makes_words_anew_and_drops_vectors_that_do_not_fit(store: SqliteStore) -> None:
    vector = Vectors("small/4/0", (struct.pack("<4f", 1, 0, 0, 0),))
    ids = [add(store, f"text {number}", vectors=vector) for number in range(3)]
    for damage in (
        "delete from words",
        "update vector set windows = x'00' where key & 1 = 1",
        "delete from code where key & 3 = 2",
    ):
        store.transaction(lambda db: db.run(damage))  # noqa: B023
    assert [found.point for found in store.check() if found.state == "fail"] == ["indexes"]
    assert store.rebuild() == 3
    assert [found.point for found in store.check() if found.state == "fail"] == []
    assert {one.id for one in store.unembedded("small/4/0", 10)} == {ids[0], ids[2]}, "a code is made of its vector"
    indexed = "select count(*) from words where length(pairs) > 0"
    assert store.snapshot(lambda db: db.rows(indexed)) == [(3,)]


def test_a_page_goes_on_after_its_last_item_was_forgotten(store: SqliteStore) -> None:
    ids = [add(store, f"text {number}") for number in range(6)]
    first = store.page(ListQuery(SCOPE, limit=3))
    store.apply(Plan(SCOPE, (Forget(first[-1].id),)))
    rest = store.page(ListQuery(SCOPE, limit=10, after=first[-1].id))
    assert [item.id for item in first] + [item.id for item in rest] == ids[::-1]


def test_an_answer_to_a_request_holds_nothing_of_the_text(store: SqliteStore) -> None:
    store.apply(Plan(SCOPE, (Add(Draft("PELICAN", slot="PELICAN-slot")),), request_id="r"))
    assert "PELICAN" not in store.snapshot(lambda db: db.rows("select answer from request"))[0][0]


def test_what_is_expected_of_a_session_is_checked(store: SqliteStore) -> None:
    add(store, "hi", kind="message", position=SessionPosition("s"))
    with pytest.raises(Conflict, match="1 messages, not 0"):
        append_messages(store, SCOPE, "s", [Draft("x", kind="message")], expect=0)


def test_importing_the_store_loads_no_numpy() -> None:
    import subprocess
    import sys

    program = "import sys; import engrain.stores.sqlite; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_look_up_by_ids_reads_no_other_row_of_the_scope() -> None:
    """By the scope's index, ten ids in a scope of 100,000 items took 43 ms instead of 0.3."""
    store = SqliteStore(":memory:")
    looked = {name: one for name, one in load_statements().items() if "ids" in one.lists and " item " in one.sql}
    assert len(looked) >= 4

    def check(db: Connection) -> None:
        for name, one in looked.items():
            values = {key: "[]" if key in one.lists else 1 for key in one.parameters}
            plan = " / ".join(row[3] for row in db.rows(f"explain query plan {one.fill(where='1 = 1').sql}", values))
            assert "(scope=?)" not in plan, f"{name}: {plan}"
            assert "item_changed" not in plan, f"{name}: {plan}"

    store.snapshot(check)
    store.close()
