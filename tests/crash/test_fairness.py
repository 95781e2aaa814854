"""Writers of six processes take turns: nobody starves or meets an error."""

from __future__ import annotations

import time
from pathlib import Path

from forked import end_forked
from writing import start_writer

from engrain.stores.sqlite import SqliteStore

PROCESSES = 6
EACH = 30


def test_six_processes_get_their_share(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    names = [f"writer{n}" for n in range(PROCESSES)]
    running = [start_writer(path, name) for name in names]
    try:
        while len(list(tmp_path.glob("*.acks"))) < PROCESSES:
            assert all(process.is_alive() for process in running)
            time.sleep(0.01)
        (tmp_path / "go").touch()
        while min(_commits(tmp_path, names)) < EACH:
            assert all(process.is_alive() for process in running)
            time.sleep(0.01)
        commits = _commits(tmp_path, names)
        (tmp_path / "stop").touch()
        for process in running:
            process.join(180)
            assert process.exitcode == 0
    finally:
        for process in running:
            end_forked(process)
    print("commits", commits)  # noqa: T201
    assert max(commits) <= 3 * EACH, commits


def _commits(folder: Path, names: list[str]) -> list[int]:
    return [(folder / f"{name}.acks").read_bytes().count(b"\n") for name in names]
