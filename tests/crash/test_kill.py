"""Six processes write, one of them is killed again and again: no acknowledged write is lost or doubled."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import end_forked
from writing import assert_sound, assert_whole, start_writer, texts

from engrain.stores.sqlite import SqliteStore

PROCESSES = 6


@pytest.mark.parametrize("seconds", [0.5, pytest.param(20.0, marks=pytest.mark.slow)])
def test_kills_lose_nothing_that_was_acknowledged(
    tmp_path: Path, seconds: float, report_counts: Callable[..., None]
) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    (tmp_path / "go").touch()
    running = {f"writer{n}": start_writer(path, f"writer{n}") for n in range(PROCESSES)}
    number, kills = PROCESSES, 0
    ends, late = time.monotonic() + seconds, time.monotonic() + seconds + 300
    try:
        # A slow machine gets more time: without writes and kills nothing would be shown.
        while time.monotonic() < ends or kills < 3 or len(_acknowledged(tmp_path)) <= 20:
            assert time.monotonic() < late, "nobody writes"
            time.sleep(random.uniform(0.05, 0.5))
            name = random.choice(list(running))
            if list(tmp_path.glob(f"{name}.acks")):
                assert running[name].is_alive(), "a writer failed by itself"
                end_forked(running.pop(name))
                kills += 1
                running[f"writer{number}"] = start_writer(path, f"writer{number}")
                number += 1
    finally:
        for process in running.values():
            end_forked(process)
    acknowledged = _acknowledged(tmp_path)
    store = SqliteStore(path)
    found = Counter(texts(store))
    assert_sound(store)
    assert_whole(store)
    store.close()
    assert [text for text in acknowledged if text not in found] == []
    assert [text for text, count in found.items() if count > 1] == []
    report_counts(kills=kills, writes=len(acknowledged))


def _acknowledged(folder: Path) -> list[str]:
    return [line for note in folder.glob("*.acks") for line in note.read_text().splitlines()]
