"""Encryption at rest: no word in any file, no key in any message, and a wrong key says so.

apsw-sqlite3mc takes the place of apsw, so it stands in a folder of its own (make puts it there), and these tests run
in a process that has this folder first in its path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder

from engrain import BackendMissing, ConfigError, InvalidInput, Memory, NotADatabase, StoreError, WrongKey
from engrain.cli.main import root
from engrain.config import Settings, load_settings
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite.opening import inspect_path

KEY = 'correct horse\'s "battery" ⚡'
CANARY = "canary-7f3a"
ENGINE = Path(sys.prefix) / "encryption"
ENCRYPTS = hasattr(apsw, "mc_version")

encrypting = pytest.mark.skipif(not ENCRYPTS, reason="runs in the process of test_all_of_this_with_the_engine")


@pytest.mark.skipif(ENCRYPTS, reason="this is that process")
def test_all_of_this_with_the_engine_that_encrypts(request: pytest.FixtureRequest) -> None:
    if not ENGINE.is_dir():
        pytest.skip(f"{ENGINE} is not there: make test installs apsw-sqlite3mc into it")
    path = os.pathsep.join([str(ENGINE), *filter(None, [os.environ.get("PYTHONPATH")])])
    chosen = request.config.getoption("markexpr")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-m", chosen, __file__]
    if chosen == "not slow":  # each open derives a key, which is meant to be slow
        command += ["-k", "word or wrong_key or all_is_there or another_key or has_its_key"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def opened(path: Path, key: str | None = KEY, read_only: bool = False) -> Memory:
    settings = {"stores": {"read_only": read_only, **({} if key is None else {"key": key})}}
    return Memory(path, user="ana", settings=settings, embedder=HashEmbedder(), background=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """With a canary in items, messages, episodes, tasks and steps, still open elsewhere."""
    path = tmp_path / "agent.db"
    with opened(path) as memory:
        memory.remember(f"The code is {CANARY}.", slot="door.code", source=f"{CANARY}.md")
        memory.add_message("user", f"Remember that {CANARY} is the word.", session=CANARY)
        memory.episodic.record_tool_call("cat", {"file": CANARY}, f"{CANARY} " * 900, session=CANARY)
        memory.tasks.checkpoint(CANARY, {"state": CANARY})
        yield path


def holding(folder: Path, words: str) -> list[str]:
    return [str(one) for one in folder.rglob("*") if one.is_file() and words.encode() in one.read_bytes()]


@encrypting
def test_no_word_is_in_any_file(store: Path) -> None:
    assert (store.parent / "agent.db-wal").stat().st_size, "the log is looked at as well"
    assert holding(store.parent, CANARY) == []
    assert holding(store.parent, "SQLite format 3") == []


@encrypting
def test_all_is_there_with_the_key(store: Path) -> None:
    with opened(store) as memory:
        found = memory.slots.get("door.code")
        assert found is not None
        assert found.text == f"The code is {CANARY}."
        assert memory.recall("What is the code?").hits
        assert memory.tasks.load_checkpoint(CANARY) == {"state": CANARY}
        assert memory.store.status(memory.scope).store["details"]["encrypted"] is True
        assert all(one.state != "fail" for one in memory.store.doctor(memory.scope))


@encrypting
def test_what_is_forgotten_is_gone_from_an_encrypted_store_too(store: Path) -> None:
    with opened(store) as memory:
        (item,) = memory.list({"slot": "door.code"})
        memory.forget(item.id)
        assert memory.get(item.id) is None
    with opened(store) as memory:
        assert memory.slots.get("door.code") is None
        assert all(one.state != "fail" for one in memory.store.doctor(memory.scope))
        assert not memory.store.status(memory.scope).store["purge_pending"]


@encrypting
def test_an_erasure_looks_through_the_pages_as_they_are_behind_the_key(store: Path) -> None:
    text = f"The code is {CANARY}."
    with opened(store) as memory:
        stray = apsw.Connection(str(store))
        stray.execute("pragma key = '{}'".format(KEY.replace("'", "''")))
        stray.execute("insert into meta (name, value) values ('stray', ?)", (text,))
        assert "traces of it are still in the file" in memory.store.erase(user="ana").why
        stray.execute("delete from meta where name = 'stray'")
        stray.close()
        (done,) = memory.store.resume_erasures()
        assert done.receipt, done.why
        assert "every_page_written_anew" in done.receipt.values["methods"]
        assert "unused_bytes_overwritten" not in done.receipt.values["methods"]
        assert done.receipt.values["verified"]["bytes"] > 0
        assert memory.store.verify_erasure(done.receipt, texts=[text])
        memory.remember(text)
        again = memory.store.verify_erasure(done.receipt, texts=[text])
        assert (again.found > 0, again.bytes > 0) == (True, True)
    assert holding(store.parent, CANARY) == []


@encrypting
def test_what_was_not_looked_through_is_not_said_to_be_clean(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.stores.sqlite.erasure.MAX_DECRYPTED_BYTES", 4096)
    with opened(store) as memory:
        done = memory.store.erase(user="ana")
        assert done.receipt
        assert done.receipt.values["verified"]["bytes"] == 0
        (store.parent / "ana.json").write_text(str(done.receipt))
    command = ["--store", str(store), "erase", "verify", str(store.parent / "ana.json"), "--text", f"It is {CANARY}."]
    result = CliRunner().invoke(root, command, env={"ENGRAIN_KEY": KEY})
    assert "No bytes were searched" in result.output, result.output
    assert "traces" not in result.output


@encrypting
@pytest.mark.parametrize("wrong", [KEY + "!", "x", KEY.upper()])
def test_a_wrong_key_is_refused_and_changes_nothing(store: Path, wrong: str) -> None:
    before = store.read_bytes()
    with pytest.raises(WrongKey, match="cannot be read with this key"):
        opened(store, wrong)
    with pytest.raises(WrongKey):
        opened(store, wrong, read_only=True)
    assert store.read_bytes() == before


@encrypting
def test_without_the_key_the_error_names_it(store: Path) -> None:
    with pytest.raises(NotADatabase, match="ENGRAIN_KEY"):
        opened(store, None)


@encrypting
def test_a_key_for_a_plain_store_says_what_to_do(tmp_path: Path) -> None:
    opened(tmp_path / "plain.db", None).close()
    with pytest.raises(WrongKey, match=r"is not encrypted.*engrain backup --encrypt"):
        opened(tmp_path / "plain.db")


@encrypting
def test_the_key_comes_from_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_KEY", KEY)
    with opened(store, None) as memory:
        assert memory.slots.get("door.code")
    monkeypatch.setenv("ENGRAIN_KEY", "another")
    with opened(store, KEY) as memory:
        assert memory.slots.get("door.code"), "what the program says comes first"


@encrypting
@pytest.mark.slow
def test_several_processes_write_to_an_encrypted_store(store: Path) -> None:
    code = (
        "import sys; from engrain import Memory; from engrain_conformance.embedder import HashEmbedder\n"
        "with Memory(sys.argv[1], user='ana', embedder=HashEmbedder(), background=False) as memory:\n"
        "    for n in range(20): memory.remember(f'{sys.argv[2]} said {n}.')\n"
    )
    env = {**os.environ, "ENGRAIN_KEY": KEY}
    running = [subprocess.Popen([sys.executable, "-c", code, str(store), name], env=env) for name in ("Ada", "Bob")]
    assert [one.wait() for one in running] == [0, 0]
    with opened(store) as memory:
        assert len(memory.list({"kind": "fact", "slot": None}, limit=99)) >= 40


# Backups


@encrypting
def test_a_backup_of_an_encrypted_store_has_its_key(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(store) as memory:
        assert memory.store.backup(store.parent / "b.db").manifest.encrypted
    assert holding(store.parent, CANARY) == []
    new = store.parent / "new.db"
    with pytest.raises(WrongKey, match="ENGRAIN_BACKUP_KEY"):
        restore_backup(store.parent / "b.db", new)
    with pytest.raises(WrongKey, match=r"Check ENGRAIN_BACKUP_KEY, or ENGRAIN_KEY") as wrong:
        restore_backup(store.parent / "b.db", new, key="another")
    assert "Memory(key=" not in str(wrong.value), "the store's own key is not what is wrong"
    assert not new.exists()
    monkeypatch.setenv("ENGRAIN_KEY", KEY)
    restore_backup(store.parent / "b.db", new)
    assert holding(store.parent, CANARY) == []
    with opened(new) as memory:
        assert memory.slots.get("door.code")


@encrypting
def test_a_plain_store_has_an_encrypted_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sealed = tmp_path / "plain.db", tmp_path / "sealed.db"
    with opened(plain, None) as memory:
        memory.remember(f"The word is {CANARY}.")
        memory.store.backup(sealed, key=KEY)
    assert holding(tmp_path, CANARY) == [str(plain)]
    restore_backup(sealed, tmp_path / "new.db", key=KEY)
    with opened(tmp_path / "new.db", None) as memory:
        assert len(memory.list()) == 1, "without ENGRAIN_KEY the store that is made is plain again"
    monkeypatch.setenv("ENGRAIN_KEY", "of the store")
    restore_backup(sealed, tmp_path / "sealed-too.db", key=KEY)
    with opened(tmp_path / "sealed-too.db", None) as memory:
        assert len(memory.list()) == 1
    assert str(tmp_path / "sealed-too.db") not in holding(tmp_path, CANARY)


@encrypting
def test_backup_then_forget_then_restore_leaves_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_KEY", KEY)
    path = tmp_path / "agent.db"
    with opened(path) as memory:
        memory.remember(f"The code is {CANARY}.", slot="door.code")
        memory.remember("Tea is the word.")
        memory.store.backup(tmp_path / "b.db")
        memory.forget({"slot": "door.code"})
    restore_backup(tmp_path / "b.db", path, force=True)
    with opened(path) as memory:
        assert memory.slots.get("door.code") is None
    assert b"is the word" in decrypted(path), "other words are"
    assert b"The code is" not in decrypted(path)


@encrypting
def test_a_store_whose_key_is_not_given_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, backup = tmp_path / "agent.db", tmp_path / "b.db"
    with opened(path) as memory:
        memory.remember("Ana likes tea.")
        memory.store.backup(backup, key="of the backup")
    before = path.read_bytes()
    monkeypatch.delenv("ENGRAIN_KEY", raising=False)
    for given in (None, "another"):
        if given:
            monkeypatch.setenv("ENGRAIN_KEY", given)
        with pytest.raises(WrongKey, match="ENGRAIN_KEY"):
            restore_backup(backup, path, key="of the backup", force=True)
        assert path.read_bytes() == before
    path.write_bytes(bytes(len(before)))
    assert restore_backup(backup, path, key="of the backup", force=True).may_hold_forgotten, "a damaged one is"


def decrypted(path: Path) -> bytes:
    """Every page as it is behind the key."""
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    db = apsw.Connection(str(copy))
    db.execute("pragma key = '{}'".format(KEY.replace("'", "''")))
    db.execute("pragma journal_mode = delete")
    db.execute("pragma rekey = ''")
    db.close()
    return copy.read_bytes()


@encrypting
def test_the_command_encrypts_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "plain.db", None) as memory:
        memory.remember(f"The word is {CANARY}.")
    monkeypatch.setenv("ENGRAIN_BACKUP_KEY", KEY)
    sealed = str(tmp_path / "sealed.db")
    result = CliRunner().invoke(root, ["--store", str(tmp_path / "plain.db"), "backup", sealed, "--encrypt"])
    assert (result.exit_code, "encrypted" in result.output, KEY in result.output) == (0, True, False), result.output
    assert holding(tmp_path, CANARY) == [str(tmp_path / "plain.db")]
    result = CliRunner().invoke(root, ["restore", sealed, str(tmp_path / "new.db")])
    assert result.exit_code == 0, result.output


# What holds with either engine


@pytest.mark.skipif(ENCRYPTS, reason="the engine is there")
def test_a_backup_that_cannot_be_encrypted_is_not_written_plain(tmp_path: Path) -> None:
    with opened(tmp_path / "plain.db", None) as memory, pytest.raises(BackendMissing):
        memory.store.backup(tmp_path / "sealed.db", key=KEY)
    assert not list(tmp_path.glob("sealed*"))


def test_the_key_is_in_no_representation(tmp_path: Path) -> None:
    shown = [Settings(key=KEY), inspect_path(tmp_path / "a.db", read_only=False, key=KEY)]
    assert [KEY in f"{one!r}{one}" for one in shown] == [False] * 2


def test_the_key_is_in_no_error_and_no_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = []
    for wrong in ("k3y'quoted", 'k3y"double', "k3y); drop table item; --"):
        try:
            with opened(tmp_path / f"{len(said)}.db", wrong) as memory:
                said.append(f"{memory.store.status(memory.scope)!r} {memory.store.doctor(memory.scope)!r}")
            opened(tmp_path / f"{len(said) - 1}.db", wrong + "-not")
        except (StoreError, BackendMissing, ConfigError) as exc:
            said.append(f"{exc!r} {exc} {exc.__cause__!r} {exc.__context__!r}")
    assert said
    assert "k3y" not in "".join(said) + caplog.text


@pytest.mark.parametrize("key", ["", "a\x00b", 7])
def test_a_key_is_a_text(tmp_path: Path, key: object) -> None:
    with pytest.raises(InvalidInput, match="the key"):
        opened(tmp_path / "a.db", key)  # type: ignore[arg-type]
    with opened(tmp_path / "plain.db", None) as memory, pytest.raises(InvalidInput, match="the key"):
        memory.store.backup(tmp_path / "b.db", key=key)  # type: ignore[arg-type]


def test_a_key_is_no_setting_of_a_file(tmp_path: Path) -> None:
    toml = tmp_path / "engrain.toml"
    toml.write_text('[stores]\ndefault = "a.db"\nkey = "secret"\n')
    with pytest.raises(ConfigError, match="can only be set by a program"):
        load_settings(toml)


def test_a_server_is_not_encrypted_by_a_key() -> None:
    with pytest.raises(ConfigError, match="its own server"):
        opened("reference://")  # type: ignore[arg-type]


@pytest.mark.skipif(ENCRYPTS, reason="the engine is there")
def test_without_the_engine_the_error_has_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(BackendMissing, match=r'pip install "engrain\[encryption\]"'):
        opened(tmp_path / "a.db")
    assert list(tmp_path.glob("*.db")) == [], "and no plain file is made in its stead"


@pytest.mark.skipif(ENCRYPTS, reason="the engine is there")
def test_an_engine_that_apsw_has_overwritten_is_put_back_by_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apsw_sqlite3mc-3.54.0.0.dist-info").mkdir()
    (tmp_path / "apsw_sqlite3mc-3.54.0.0.dist-info" / "METADATA").write_text(
        "Name: apsw-sqlite3mc\nVersion: 3.54.0.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="--force-reinstall --no-deps apsw-sqlite3mc"):
        opened(tmp_path / "a.db")


@encrypting
@pytest.mark.parametrize(
    ("before", "after"),
    [(None, KEY), *(pytest.param(KEY, after, marks=pytest.mark.slow) for after in ("another", None))],
)
def test_a_store_gets_another_key_and_what_was_forgotten_meanwhile_stays_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str | None
) -> None:
    path, backup = tmp_path / "agent.db", tmp_path / "b.db"
    with opened(path, before) as memory:
        gone = memory.remember(f"The word is {CANARY}.")
        memory.remember("Ana likes tea.")
        memory.store.backup(backup)
        memory.forget(gone)
    if after is not None:
        monkeypatch.setenv("ENGRAIN_KEY", after)
    done = restore_backup(backup, path, key=before, force=True)
    assert done.kept_out
    assert done.kept_out["item"] == 1
    with opened(path, after) as memory:
        assert [item.text for item in memory.list()] == ["Ana likes tea."]
    backup.unlink()
    assert holding(tmp_path, CANARY) == []
    assert holding(tmp_path, "Ana likes tea") == ([str(path)] if after is None else [])
