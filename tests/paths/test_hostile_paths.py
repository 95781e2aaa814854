"""Whatever stands at a path that a caller names: a typed error, soon, and without reading more than a limit."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from forked import fork_child, wait_for_child

from engrain import Memory, Store
from engrain.agent.attachments import parse_attachments
from engrain.bench.evaluate import read_script
from engrain.bench.recall import read_folder
from engrain.cli.main import root
from engrain.config import load_settings
from engrain.connect.connect_home import ConnectHome, read_json
from engrain.connect.events import read_event
from engrain.connect.hook import read_breaker
from engrain.connect.json_text import set_member
from engrain.connect.repository import Repository
from engrain.connect.rule_files import load_rule_files
from engrain.connect.settings_changes import ChangeLedger, FileEdit
from engrain.connect.spool import take_events
from engrain.connect.transcripts import read_transcript
from engrain.core.errors import EngrainError
from engrain.core.formats.manifests import MANIFEST_SUFFIX
from engrain.memory.transfer import restore_backup
from engrain.server.keys import KeyFile
from engrain.stores.sqlite import SqliteStore

SECONDS, MORE_MEMORY = 20, 1 << 30
OK = "it was accepted"
HUGE = 512 << 30

# What stands at the path. A sparse file takes no room on the disk.
SPECIAL: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a link to a pipe": lambda path: make_linked_pipe(path),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
    "half a terabyte of zeros": lambda path: make_sparse(path, b""),
    "text and half a terabyte of zeros": lambda path: make_sparse(path, b'{"text": "a"}\n'),
}
CONTENTS: dict[str, bytes] = {
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "a double key in deep lists": b"[" * 1_015 + b'{"a": 1, "a": 2}' + b"]" * 1_015,
    "deep TOML": b"a = " + b"[" * 200_000,
    "a dotted key": b"a." * 400_000 + b"a = 1",
    "a number of a million digits": b'{"version": ' + b"9" * 1_000_000 + b"}",
    "bytes that are no text": b"\xff\xfe\x00\x80" * 100,
    "NULs": b"\0" * 1_000,
}


def make_linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to(path.with_name("pipe"))


def make_sparse(path: Path, head: bytes) -> None:
    path.write_bytes(head)
    os.truncate(path, HUGE)


def call_command(*words: object) -> None:
    with pytest.raises(SystemExit) as ended:
        root.main([str(word) for word in words])
    assert ended.value.code in (1, 2)
    raise EngrainError("refused")


def make_backup(path: Path) -> Path:
    with closing(SqliteStore(path.with_name("store.db"))) as store:
        store.backup(path.with_name("backup.db"))
    return path.with_name("backup.db")


def restore_with_manifest(path: Path) -> None:
    backup = make_backup(path)
    manifest = backup.with_name(backup.name + MANIFEST_SUFFIX)
    manifest.unlink()
    os.rename(path, manifest)
    restore_backup(backup, path.with_name("new.db"))


def restore_file(path: Path) -> None:
    backup = make_backup(path)
    backup.unlink()
    os.rename(path, backup)
    restore_backup(backup, path.with_name("new.db"))


def diagnose_backups(path: Path) -> None:
    """The doctor reads the manifests in a folder of backups."""
    folder = path.with_name("backups")
    settings = {"lifecycle": {"backup_folder": str(folder)}}
    with Store(path.with_name("store.db"), embedder=HashEmbedder(), background=False, settings=settings) as store:
        store.maintain()
        (manifest,) = folder.glob(f"*{MANIFEST_SUFFIX}")
        manifest.unlink()
        os.rename(path, manifest)
        store.doctor()


def sync_mirror(path: Path) -> None:
    with open_memory(path) as memory:
        memory.remember("Ana likes tea.")
        memory.mirror(path.with_name("mirror")).sync()
        page = path.with_name("mirror") / "MEMORY.md"
        page.unlink()
        os.rename(path, page)
        memory.mirror(path.with_name("mirror")).sync()


def open_memory(path: Path) -> Memory:
    return Memory(path.with_name("store.db"), user="ana", embedder=HashEmbedder(), background=False)


def load_rules(path: Path) -> None:
    """The rules of a cloned repository, which its author wrote. They are left out, without an error."""
    folder = path.with_name("repository")
    folder.mkdir()
    os.rename(path, folder / "AGENTS.md")
    with open_memory(path) as memory:
        load_rule_files(memory, Repository(folder.name, folder, "main"))
        if not memory.list():
            raise EngrainError("left out")


def plan_settings(path: Path) -> None:
    """A client's settings are read, to be changed."""
    edit = FileEdit(path, lambda text: set_member(text, ["hooks"], {}), str, lambda text: False)
    ChangeLedger(ConnectHome(path.with_name("home")).prepare()).plan_connect("claude", [edit])


def take_spooled(path: Path) -> None:
    home = ConnectHome(path.with_name("home")).prepare()
    os.rename(path, home.spool / "0.json")
    (home.spool / "1.json").write_text('{"event": "prompt"}')
    if [message for _, message in take_events(home)] != [{"event": "prompt"}]:
        raise AssertionError("the event behind it is lost")
    raise EngrainError("left out")


def read_named_transcript(path: Path) -> None:
    """Copilot names the file with its answer in the event."""
    transcript = path.rename(path.with_name("events.jsonl"))
    payload = {"sessionId": "s", "cwd": "/", "transcriptPath": str(transcript)}
    if read_event({"client": "copilot", "event": "agentStop", "payload": payload}) is None:
        raise EngrainError("left out")


def plan_disconnect(path: Path) -> None:
    """The backup of a client's settings, as they were before."""
    home = ConnectHome(path.with_name("home")).prepare()
    settings = path.with_name("settings.json")
    settings.write_text("{}")
    edit = FileEdit(settings, lambda text: "{1}", lambda text: "{}", lambda text: text == "{1}")
    ledger = ChangeLedger(home)
    ledger.connect("claude", [edit])
    (backup,) = home.backups.iterdir()
    backup.unlink()
    os.rename(path, backup)
    ChangeLedger(home).plan_disconnect("claude", [edit])


def refuse(why: str) -> None:
    raise EngrainError(why)


def read_gzipped(path: Path) -> None:
    folder = path.with_name("folder")
    folder.mkdir()
    os.rename(path, folder / "docs.jsonl.gz")
    with gzip.open(folder / "questions.jsonl.gz", "wb") as file:
        file.write(b"")
    read_folder(folder)


def restore_long_file(path: Path) -> None:
    """A backup of half a terabyte whose manifest says so."""
    backup = make_backup(path)
    manifest = backup.with_name(backup.name + MANIFEST_SUFFIX)
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "bytes": HUGE}))
    os.truncate(backup, HUGE)
    restore_backup(backup, path.with_name("new.db"))


def erase_beside_long_file(path: Path) -> None:
    """An erasure looks for copies of the store in its folder. A damaged one has half a terabyte there."""
    backup = make_backup(path)
    with backup.open("r+b") as file:
        file.truncate(4096)
        file.truncate(HUGE)
    with open_memory(path) as memory:
        memory.remember("Ana likes tea.")
        memory.store.erase(user="ana")


def open_long_store(path: Path) -> None:
    with open_memory(path) as memory:
        id = memory.remember("Ana likes tea.")
    os.truncate(path.with_name("store.db"), HUGE)
    with open_memory(path) as memory:
        memory.recall("tea")
        assert not memory.forget(id).pending
        memory.store.doctor()
        memory.store.backup(path.with_name("backup.db"))


READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: load_settings(path.rename(path.with_name("engrain.toml"))),
    "store": lambda path: Memory(path, user="ana").close(),
    "source of a copy": lambda path: call_command("copy", path, path.with_name("copy.db"), "--yes"),
    "backup": restore_file,
    "manifest": restore_with_manifest,
    "manifest for the doctor": diagnose_backups,
    "receipt": lambda path: restore_backup(make_backup(path), path.with_name("new.db"), receipts=[path]),
    "receipt to verify": lambda path: call_command(
        "--store", make_backup(path).with_name("store.db"), "erase", "verify", path
    ),
    "file to load": lambda path: open_memory(path).load(path),
    "file to load, by a command": lambda path: call_command("--store", path.with_name("store.db"), "load", path),
    "script": read_script,
    "folder to measure": read_gzipped,
    "keys": lambda path: KeyFile(path).list(),
    "page of a mirror": sync_mirror,
    "rules of a repository": load_rules,
    "state of connect": read_json,
    "settings of a client": plan_settings,
    "transcript": lambda path: [*read_transcript("claude", path)] or refuse("it has no event"),
    "transcript of opencode": lambda path: [*read_transcript("opencode", path)],
    "transcript that an event names": read_named_transcript,
    "spooled event": take_spooled,
    "state of the hook": lambda path: read_breaker(str(path)) == (0, 0.0) and refuse("it counts as none"),
    "backup of a client's settings": plan_disconnect,
    "attachment": lambda path: parse_attachments([path.rename(path.with_name("photo.png"))]),
}


def run_limited(works: Sequence[Callable[[], object]]) -> list[str]:
    """Run each in a child with little time and memory. Return "" for a typed error, else what happened."""
    said: list[str] = []
    while len(said) < len(works):
        said += run_until_killed(works[len(said) :])
    return said


def run_until_killed(works: Sequence[Callable[[], object]]) -> list[str]:
    """One child for all of them, up to the first that takes too long."""
    reads, writes = os.pipe()

    def run_all() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for work in works:
            os.write(writes, json.dumps(run_here(work)).encode() + b"\n")

    child = fork_child(run_all)
    os.close(writes)
    with open(reads, "rb") as file:
        said = [json.loads(line) for line in file]
    return [*said, f"it took more than {SECONDS} s"] if wait_for_child(child) < 0 else said


def run_here(work: Callable[[], object]) -> str:
    signal.alarm(SECONDS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, resource.RLIM_INFINITY))
    try:
        work()
    except EngrainError:
        return ""
    except BaseException as exc:  # noqa: BLE001  (the point of this test)
        return f"{type(exc).__name__}: {exc}"[:1_000]
    return OK


# These are any text or bytes. For the doctor, a backup without its manifest is none.
ANY_CONTENT = ("page of a mirror", "rules of a repository", "attachment")
ACCEPTED = {(reader, what) for reader in ANY_CONTENT for what in CONTENTS}
ACCEPTED -= {("page of a mirror", "bytes that are no text"), ("page of a mirror", "NULs")}
ACCEPTED |= {("manifest for the doctor", what) for what in (*SPECIAL, *CONTENTS)}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at the memory that Linux counts")


@pytest.mark.parametrize("reader", READERS)
def test_whatever_stands_at_a_path_is_a_typed_error(
    tmp_path: Path, reader: str, report_counts: Callable[..., None]
) -> None:
    cases = [*SPECIAL, *CONTENTS]
    paths = [tmp_path / str(number) / "given" for number in range(len(cases))]
    for path, what in zip(paths, cases, strict=True):
        path.parent.mkdir()
        SPECIAL[what](path) if what in SPECIAL else path.write_bytes(CONTENTS[what])
        if what not in SPECIAL or "terabyte" in what:
            path.chmod(0o600)
    found = run_limited([partial(READERS[reader], path) for path in paths])
    accepted = {what for name, what in ACCEPTED if name == reader}
    told = dict(zip(cases, found, strict=True))
    assert {what: said for what, said in told.items() if said and (said, what in accepted) != (OK, True)} == {}
    report_counts(readers=1, files=len(cases))


@pytest.mark.parametrize("use", [restore_long_file, erase_beside_long_file, open_long_store])
def test_a_sparse_file_of_half_a_terabyte_holds_nobody_up(tmp_path: Path, use: Callable[[Path], None]) -> None:
    assert run_limited([partial(use, tmp_path / "given")])[0] in ("", OK)


def test_rules_of_a_repository_lead_to_no_file_outside_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "key").write_text("a secret of the reader")
    (folder / "AGENTS.md").symlink_to(tmp_path / "key")
    (folder / "CLAUDE.md").write_text("Use tabs.")
    with open_memory(tmp_path / "given") as memory:
        load_rule_files(memory, Repository(folder.name, folder, "main"))
        assert [item.text for item in memory.list()] == ["Use tabs."]
