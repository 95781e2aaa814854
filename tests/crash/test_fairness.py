"""Writers of six processes take turns: nobody starves, waits long, or meets an error."""

from __future__ import annotations

import time
from pathlib import Path

from writing import kill, start

from engrain.stores.sqlite import SqliteStore

PROCESSES = 6


def test_six_processes_get_their_share(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    names = [f"writer{n}" for n in range(PROCESSES)]
    running = [start("steadily", path, name, 3) for name in names]
    try:
        while len(list(tmp_path.glob("*.acks"))) < PROCESSES:
            assert all(process.poll() is None for process in running)
            time.sleep(0.01)
        (tmp_path / "go").touch()
        for process in running:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors.decode()) == (0, "")
    finally:
        for process in running:
            kill(process)
    results = [(tmp_path / f"{name}.result").read_text().split() for name in names]
    commits = [int(count) for count, _ in results]
    waits = [float(longest) for _, longest in results]
    print("commits", commits, "longest wait", max(waits))  # noqa: T201
    assert min(commits) * 3 >= max(commits), commits
    assert max(waits) < 1.0, waits
