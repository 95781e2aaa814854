"""Files that we make are their owner's alone from their first byte on, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from engrain import Memory, Store
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite import schema
from engrain.stores.vectors.clients import LockedFolder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def find_open(folder: Path) -> dict[str, str]:
    """The modes of all files and folders that somebody else can look into."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077}


def test_no_file_of_a_store_is_open_to_others(tmp_path: Path) -> None:
    with Memory(tmp_path / "store.db", user="ana") as memory:
        memory.remember("Ana lives in Quito.")
        assert {path.name for path in tmp_path.iterdir()} >= {"store.db", "store.db-wal", "store.db-lock"}
        assert find_open(tmp_path) == {}
        memory.mirror(tmp_path / "mirror").sync()
        memory.export(tmp_path / "ana.jsonl")
        memory.store.backup(tmp_path / "backup.db")
        assert find_open(tmp_path) == {}
    restore_backup(tmp_path / "backup.db", tmp_path / "restored.db")
    with Store(tmp_path / "restored.db"):
        assert find_open(tmp_path) == {}


def refuse(*_: object) -> None:
    raise OSError(1, "no hard links here")


def test_no_file_is_open_to_others_where_the_migrations_run_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema.os, "link", refuse)
    with Memory(tmp_path / "store.db", user="ana") as memory:
        memory.remember("Ana lives in Quito.")
        assert find_open(tmp_path) == {}


def test_the_folder_of_an_embedded_index_is_private(tmp_path: Path) -> None:
    folder = LockedFolder(tmp_path / "vectors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors", "vectors.lock"]
    assert find_open(tmp_path) == {}
    folder.leave()


def test_folders_on_the_way_are_private_too(tmp_path: Path) -> None:
    with Memory(
        tmp_path / "store.db", user="ana", settings={"lifecycle": {"backup_folder": str(tmp_path / "a" / "b")}}
    ) as memory:
        memory.remember("Ana lives in Quito.")
        memory.store.maintain()
        assert (tmp_path / "a" / "b").is_dir()
        assert find_open(tmp_path) == {}


def test_the_lock_of_a_shared_store_is_shared(tmp_path: Path) -> None:
    Store(tmp_path / "store.db").close()
    (tmp_path / "store.db").chmod(0o660)
    (tmp_path / "store.db-lock").unlink()
    with Memory(tmp_path / "store.db", user="ana") as memory:
        memory.remember("Ana lives in Quito.")
        assert stat.S_IMODE((tmp_path / "store.db-lock").stat().st_mode) == 0o660


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_doctor_warns_of_a_store_that_others_can_read(tmp_path: Path, mode: int) -> None:
    made = [path for path in (tmp_path, *tmp_path.parents) if not path.stat().st_mode & 0o001]  # of the test runs
    before = {path: path.stat().st_mode for path in made}
    with Store(tmp_path / "store.db") as store:
        assert find_state(store) == "pass"
        try:
            for path in made:
                path.chmod(0o755)
            (tmp_path / "store.db").chmod(mode)
            assert find_state(store) == "warn"
            tmp_path.chmod(0o700)
            assert find_state(store) == "pass", "nobody else comes that far"
        finally:
            for path, was in before.items():
                path.chmod(was)


def find_state(store: Store) -> str:
    return next(finding.state for finding in store.services.items.deployment() if finding.point == "rights")
