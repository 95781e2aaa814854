"""A memory whose rows lie in several stores goes out whole and comes back equal, into any of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from export_kit import exported, filled
from redis_server import Server, redis_server
from schemas import empty_store

from engrain import Conflict, Memory, TooLarge
from engrain.stores.redis import store as redis_store
from engrain.stores.redis.store import RedisTransfer
from engrain.transfer import load_export

DEPLOYED = ("sqlite", "sqlite+redis", "postgres", "postgres+redis")
BY_DEFAULT = ("sqlite+redis", "postgres+redis")
_numbers = count()


class Deployments:
    """Opens a fresh memory of each kind; the servers are real."""

    def __init__(self, folder: Path, clock: SetClock, open_: ExitStack) -> None:
        self._folder, self._clock, self._open = folder, clock, open_
        self._databases = count()

    def fresh(self, kind: str, **options: Any) -> Memory:
        return self.opened(self.named(kind), **options)

    def opened(self, store: str, **options: Any) -> Memory:
        known = {"user": "ana", "clock": self._clock, "background": False, "embedder": HashEmbedder(), **options}
        return self._open.enter_context(Memory(store, **known))

    def named(self, kind: str) -> str:
        first, _, beside = kind.partition("+")
        number = next(_numbers)
        store = str(self._folder / f"{number}.db")
        if first == "postgres":
            store = self._open.enter_context(empty_store())
        if not beside:
            return store
        episodes, tasks = (f"{redis_server().url}/{next(self._databases)}" for _ in range(2))
        path = self._folder / f"{number}.toml"
        path.write_text(f'[stores]\ndefault = "{store}"\nepisodic = "{episodes}"\ntasks = "{tasks}"\n')
        return str(path)


@pytest.fixture
def server() -> Server:
    redis_server().client.flushall()
    return redis_server()


@pytest.fixture
def stores(tmp_path: Path, clock: SetClock, server: Server) -> Iterator[Deployments]:
    with ExitStack() as open_:
        yield Deployments(tmp_path, clock, open_)


def loaded(memory: Memory, raw: bytes, **terms: Any) -> Any:
    return memory.load(io.BytesIO(raw), **{"trusted": True, **terms})


@pytest.mark.parametrize(
    "source", [one if one in BY_DEFAULT else pytest.param(one, marks=pytest.mark.slow) for one in DEPLOYED]
)
def test_a_memory_is_the_same_in_every_deployment(source: str, stores: Deployments, clock: SetClock) -> None:
    raw = exported(filled(stores.fresh(source), clock))
    for kind in DEPLOYED:
        there = stores.fresh(kind)
        answer = loaded(there, raw)
        assert exported(there) == raw, kind
        assert (answer.kept_out, answer.repeated) == (0, 0)
        assert loaded(there, raw).added == 0


@pytest.mark.parametrize("kind", DEPLOYED)
def test_a_dry_run_says_what_a_load_does_and_leaves_no_row(kind: str, stores: Deployments, clock: SetClock) -> None:
    raw = exported(filled(stores.fresh("sqlite"), clock))
    notes = b'{"text": "Lima", "slot": "c"}\n{"text": "Quito", "slot": "c"}\n{"text": "Quito", "slot": "c"}\n'
    there = stores.fresh(kind)
    there.remember("Ana likes tea.")
    for file in (raw, notes):
        before = exported(there)
        dry = loaded(there, file, dry_run=True)
        assert exported(there) == before
        done = loaded(there, file)
        assert replace(dry, written=True) == done


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_dry_run_does_not_keep_others_waiting_for_long(
    kind: str, stores: Deployments, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = exported(filled(stores.fresh("sqlite"), clock))
    there = stores.fresh(kind)
    monkeypatch.setattr(load_export, "MAX_PREVIEW_SECONDS", -1.0)
    for file in (raw, b'{"text": "Lima"}\n', b'{"text": "Lima", "position": {"session": "s", "number": 0}}\n'):
        with pytest.raises(TooLarge, match="other writers"):
            loaded(there, file, dry_run=True)
        assert there.list() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_dry_run_meets_the_refusal_that_the_load_would_meet(kind: str, stores: Deployments, clock: SetClock) -> None:
    store = stores.named(kind)
    raw = exported(filled(stores.opened(store), clock))
    for dry_run in (True, False):
        with pytest.raises(Conflict, match="another memory of the store has the same ids"):
            loaded(stores.opened(store, user="ben"), raw, other_scope=True, dry_run=dry_run)


def test_a_load_that_was_cut_off_anywhere_is_finished_by_the_next(
    stores: Deployments, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = exported(filled(stores.fresh("sqlite"), clock))
    there = stores.fresh("sqlite+redis")
    cut = CutOff(monkeypatch)
    while cut.off(lambda: loaded(there, raw)):
        assert exported(there) != raw
    assert cut.times > 10
    assert exported(there) == raw


class CutOff:
    """Lets each try keep one more row in Redis before it is cut off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._left = 0
        for name in ("restore_episode", "restore_task", "restore_step", "restore_event"):
            kind = name.removeprefix("restore_")
            monkeypatch.setitem(redis_store._RESTORES, kind, self._dying(getattr(RedisTransfer, name)))  # type: ignore[arg-type]

    def off(self, load: Callable[[], object]) -> bool:
        self._left = 1
        try:
            load()
        except KeyboardInterrupt:
            self.times += 1
            return True
        return False

    def _dying(self, keep: Callable[..., None]) -> Callable[..., None]:
        def kept(*args: Any) -> None:
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
            keep(*args)

        return kept


def test_a_task_that_went_on_since_keeps_its_own_steps(stores: Deployments, clock: SetClock) -> None:
    there = filled(stores.fresh("sqlite+redis"), clock)
    raw = exported(there)
    with there.task("half") as run:
        assert run.step("one", lambda: 2) == 1
        run.step("two", lambda: 2)
    before = exported(there)
    assert loaded(there, raw).added == 0
    assert exported(there) == before


def test_what_was_forgotten_is_in_no_export_and_does_not_come_back_to_redis(
    stores: Deployments, clock: SetClock, server: Server
) -> None:
    there = filled(stores.fresh("sqlite+redis"), clock)
    raw = exported(there)
    there.forget({"text": "Error: It broke."})
    before = exported(there)
    assert b"It broke." not in before
    assert loaded(there, raw).kept_out >= 2
    assert exported(there) == before


def test_two_who_read_the_same_server_do_not_disturb_each_other(stores: Deployments, clock: SetClock) -> None:
    there = filled(stores.fresh("sqlite+redis"), clock)
    rows, scope = there.store.services.rows, there.scope
    assert rows is not None
    whole = {kind: rows.dump(kind, None, 999, scope) for kind in ("task", "step", "event", "episode")}
    found: dict[str, list[Any]] = {kind: [] for kind in whole}
    for _ in range(max(map(len, whole.values()))):
        for kind in whole:
            after = found[kind][-1].key if found[kind] else None
            found[kind] += rows.dump(kind, after, 1, scope)  # type: ignore[arg-type]
    assert found == whole


def test_an_export_takes_no_connection_from_others_and_its_progress_may_write(
    stores: Deployments, clock: SetClock, tmp_path: Path
) -> None:
    there = stores.opened(stores.named("postgres") + "&pool=1&timeout=5")
    there.remember("Ana likes tea.")
    before = exported(there)
    told = count()

    def told_of(*_: object) -> None:
        there.remember(f"Ana likes number {next(told)}.")
        beside.submit(there.remember, f"Ana likes letter {next(told)}.").result()

    with ThreadPoolExecutor(1) as beside:
        there.export(tmp_path / "ana.jsonl", progress=told_of)
    assert (tmp_path / "ana.jsonl").read_bytes() == before
    assert len(there.list()) == 1 + next(told)
