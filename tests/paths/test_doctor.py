"""The doctor's report: for people, for scripts, on stores that do not open, and without leaving a trace."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder
from examples import for_each

from engrain import AsyncMemory, Memory
from engrain.cli.commands.status import CHECK_COUNT as SHOWN
from engrain.cli.main import root
from engrain.core.errors import ConfigError, DiskFull, NewerStore, StoreBusy, StoreCorrupt, WrongKey
from engrain.core.model.results import GROUPS, CheckResult, summarize_checks
from engrain.health import CHECKS
from engrain.health.run_checks import explain_unopened
from engrain.stores.sqlite import schema

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "checklist.md"
# What warns on a new store on any machine: whether the disk is encrypted is for its owner to say.
NEW = {"encryption"}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "agent.db", user="ana", background=False) as memory:
        memory.remember("Ana likes tea.")
    return tmp_path / "agent.db"


def doctor(store: Path, *more: str) -> Result:
    return CliRunner().invoke(root, ["doctor", "--store", str(store), "--user", "ana", *more])


def told(store: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(doctor(store, "--json", *more).stdout)
    return found


def test_the_page_has_every_point_under_its_group() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    page = [
        (section.partition("\n")[0].lower(), int(number), name)
        for section in sections
        for number, name in re.findall(r"^\*\*(\d+) ([^*]+)\.\*\*", section, re.MULTILINE)
    ]
    assert page == [(one.group, one.number, one.name) for one in CHECKS]
    assert [one.number for one in CHECKS] == list(range(1, 36))
    assert len({one.name for one in CHECKS}) == SHOWN == 35
    assert all(one.question.endswith("?") for one in CHECKS)


def test_a_new_store_has_nothing_that_fails_and_little_to_look_at(store: Path) -> None:
    found = told(store)
    assert found["ok"]
    assert {one["name"] for one in found["findings"] if one["state"] != "pass"} <= NEW
    assert set(found["findings"][0]) == {"number", "group", "name", "state", "why", "fix"}


def test_the_report_is_in_groups_and_ends_with_a_count(store: Path) -> None:
    lines = doctor(store).stdout.splitlines()
    heads = [line.split("  ") for line in lines[1:] if re.fullmatch(r"[A-Z][a-z]+  \d of \d", line)]
    assert [name.lower() for name, _ in heads] == list(GROUPS)
    assert sum(int(count.split(" of ")[1]) for _, count in heads) == 35
    assert len([line for line in lines if re.match(r"  [✓!] +\d+ ", line)]) == 35
    assert re.fullmatch(r"35 checks: \d+ passed, \d+ with warnings, 0 failed", lines[-1])
    assert "\x1b" not in "".join(lines), "colours are for a terminal"
    assert "\x1b" in CliRunner().invoke(root, ["doctor", "--store", str(store)], color=True).output


def test_the_report_says_whose_memory_it_looked_at(store: Path) -> None:
    assert doctor(store).stdout.splitlines()[0] == "Checked: user=ana."
    other = doctor(store, "--user", "bob").stdout.splitlines()[0]
    assert "is empty. Choose yours with --user" in other
    nobody = CliRunner().invoke(root, ["doctor", "--store", str(store)]).stdout.splitlines()[0]
    assert nobody == "Checked: every memory of the store."


def test_only_a_failure_or_strictness_has_an_exit_code(store: Path) -> None:
    assert doctor(store).exit_code == 0
    assert doctor(store, "--strict").exit_code == int(any(one["state"] != "pass" for one in told(store)["findings"]))
    _outside(store, "delete from words")
    assert doctor(store).exit_code == 1
    assert doctor(store, "--rebuild").exit_code == 0


def test_the_doctor_changes_nothing(store: Path) -> None:
    before = _dump(store)
    doctor(store)
    assert _dump(store) == before


def test_the_doctor_repeats_nothing_that_is_kept(store: Path) -> None:
    with Memory(store, user="ana", background=False) as memory:
        memory.remember("The key is sk-ant-REDACTED and Zanzibar.")
        assert "Zanzibar" not in repr(memory.store.doctor(memory.scope))
        assert "AbCdEf" not in repr(memory.store.doctor(memory.scope))


@for_each(
    ("error", "point"),
    [
        (StoreCorrupt("The file is damaged."), "integrity"),
        (NewerStore("It is newer."), "schema"),
        (DiskFull("It is full."), "disk"),
        (WrongKey("Another key."), "encryption"),
        (StoreBusy("Another process has it."), "stores"),
        (ConfigError("There is no such embedder."), "stores"),
    ],
)
def test_a_store_that_does_not_open_fails_at_the_point_that_says_why(error: Any, point: str) -> None:
    found = explain_unopened(CHECKS, error, None)
    assert [one.number for one in found] == list(range(1, 36))
    (why,) = [one for one in found if one.state == "fail"]
    assert (why.name, why.why) == (point, str(error).rstrip("."))
    assert why.fix
    assert {one.state for one in found if one is not why} == {"unknown"}


def test_a_damaged_file_and_one_of_a_newer_engrain_are_told(store: Path) -> None:
    _outside(store, "pragma user_version = 999")
    result = doctor(store)
    assert result.exit_code == 1
    assert re.search(r"✗ 10 schema .*newer engrain", " ".join(result.stdout.split()))
    assert result.stdout.splitlines()[0] == "The store does not open."
    assert result.stdout.count("not checked") == 1, "what was not looked at takes no room"
    assert result.stdout.splitlines()[-1] == "35 checks: 0 passed, 0 with warnings, 1 failed, 34 not checked"
    store.write_bytes(b"no database" * 1_000)
    assert re.search(r"✗ +9 integrity", doctor(store).stdout)


def test_the_doctor_does_not_send_a_reader_to_the_doctor(store: Path) -> None:
    store.write_bytes(store.read_bytes()[:6_000])
    assert "the file is damaged" in doctor(store).stdout
    assert "Run: engrain doctor" not in doctor(store).stdout


@pytest.mark.parametrize(
    "wrong", ['[embedder]\nnaem = "local"', '[privacy]\nredact = ["nope"]', "[lifecycle]\nbackup_hours = -3"]
)
def test_settings_that_are_wrong_are_a_point_that_fails(store: Path, wrong: str) -> None:
    settings = store.with_name("agent.toml")
    settings.write_text(f'[stores]\ndefault = "{store}"\n{wrong}\n')
    found = told(settings)
    (failed,) = [one for one in found["findings"] if one["state"] == "fail"]
    assert (found["ok"], failed["name"], "settings" in failed["fix"]) == (False, "stores", True)


def test_a_name_that_cannot_be_is_not_said_to_be_in_the_settings(store: Path) -> None:
    for name in ("", "a\0b"):
        ran = CliRunner().invoke(root, ["doctor", "--store", str(store), "--user", name])
        assert (ran.exit_code, ran.stdout) == (1, "")
        assert ran.stderr.startswith("Error: "), ran.stderr


def test_a_package_that_is_missing_is_a_point_that_fails(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = store.with_name("agent.toml")
    settings.write_text(f'[stores]\ndefault = "{store}"\nvectors = "qdrant://127.0.0.1:1"\n')
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.delitem(sys.modules, "engrain.stores.vectors.qdrant", raising=False)  # a test before may have loaded it
    (failed,) = [one for one in told(settings)["findings"] if one["state"] == "fail"]
    assert (failed["name"], 'pip install "engrain[qdrant]"' in failed["why"]) == ("stores", True)


@pytest.mark.parametrize(
    ("damage", "point", "helps"),
    [
        ("update code set windows = zeroblob(4)", "self-recall", True),
        ("update words set pairs = x'ff'", "self-recall", True),
        ("update item set metadata = '{Zanzibar'", "secrets", False),
    ],
)
def test_a_row_that_cannot_be_read_fails_its_point_and_the_others_are_looked_at(
    store: Path, damage: str, point: str, helps: bool
) -> None:
    _outside(store, damage)
    found = {one["name"]: one for one in told(store)["findings"]}
    assert (found[point]["state"], found["maintenance"]["state"]) == ("fail", "pass")
    assert "doctor --rebuild" in found[point]["fix"]
    assert "restore BACKUP" in found[point]["fix"]
    assert "Zanzibar" not in repr(found)
    assert told(store, "--rebuild")["ok"] == helps


def test_settings_that_cannot_be_read_are_not_said_to_be_a_server(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("[stores")
    (failed,) = [one for one in told(tmp_path / "agent.toml")["findings"] if one["state"] == "fail"]
    assert (failed["name"], "settings" in failed["fix"], "server" in failed["fix"]) == ("stores", True, False)


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_a_new_file_is_not_for_every_user_of_the_machine(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with Memory(tmp_path / "new.db", user="ana", background=False) as memory:
            memory.remember("Ana likes tea.")
            assert [one.name for one in tmp_path.glob("new.db*") if one.stat().st_mode & 0o077] == []
    finally:
        os.umask(before)


def test_a_store_of_an_older_engrain_is_not_brought_up_to_date_by_the_doctor(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.read_bytes()
    known = schema.load_migrations()
    monkeypatch.setattr(
        schema, "load_migrations", lambda: (*known, (known[-1][0] + 1, "create table extra (n integer);\n"))
    )
    (failed,) = [one for one in told(store)["findings"] if one["state"] == "fail"]
    assert (failed["name"], "older schema" in failed["why"]) == ("schema", True)
    assert store.read_bytes() == old
    CliRunner().invoke(root, ["status", "--store", str(store)])
    assert told(store)["ok"], "what the doctor says fixes it does"


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = doctor(tmp_path / "typo.db")
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_memory_is_examined_too(store: Path) -> None:
    with Memory(store, user="ana", settings={"stores": {"read_only": True}}) as memory:
        assert {one.name for one in memory.store.doctor(memory.scope) if one.state != "pass"} <= NEW


@pytest.mark.parametrize("where", [":memory:", "reference://"])
def test_a_store_without_a_file_is_examined_too(where: str) -> None:
    with Memory(where, embedder=HashEmbedder()) as memory:
        memory.remember("Ana likes tea.")
        memory.add_message("user", "Hello.", session="s")
        assert [one.name for one in memory.store.doctor(memory.scope) if one.state != "pass"] == ["power cut"]


def test_the_awaited_face_gives_the_same(store: Path) -> None:
    async def checked() -> list[CheckResult]:
        async with AsyncMemory(store, user="ana", background=False) as memory:
            return await memory.store.doctor(memory.scope)

    with Memory(store, user="ana", background=False) as memory:
        done: list[tuple[str, int, int | None]] = []
        found = memory.store.doctor(memory.scope, progress=lambda *told: done.append(told))
        assert [(one.number, one.state) for one in found] == [(one.number, one.state) for one in asyncio.run(checked())]
        assert done == [("points", number, 35) for number in range(1, 36)]


def test_the_count_names_every_state() -> None:
    points = [CheckResult(n, "tiers", str(n), state, "") for n, state in enumerate(("pass", "warn", "fail", "unknown"))]  # type: ignore[arg-type]
    assert summarize_checks(points) == "4 checks: 1 passed, 1 with warnings, 1 failed, 1 not checked"


def test_thousands_of_items_take_about_a_second(tmp_path: Path) -> None:
    """Generously: other tests run beside."""
    import time

    with Memory(tmp_path / "agent.db", user="ana", background=False, embedder=HashEmbedder()) as memory:
        memory.remember_many([f"Note {n} speaks of parcel {n % 97} and of train {n % 89}." for n in range(2_000)])
        began = time.thread_time()
        memory.store.doctor(memory.scope)
        assert time.thread_time() - began < 1.0


def _outside(path: Path, statement: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with sqlite3.connect(path) as db:
            db.execute(statement)
        db.close()


def _dump(path: Path) -> str:
    """By another process, as the file stands."""
    code = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).iterdump(), sep='\\n')"
    return subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
