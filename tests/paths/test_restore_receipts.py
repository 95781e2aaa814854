"""After a store is lost, the receipts that were kept outside of it keep the erased out of what a backup brings back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from erasing_kit import WORD, fill, found, opened

from engrain import InvalidInput, restore_backup
from engrain.cli.root import root
from engrain.memory.receipts import read_receipts


def run(*words: object) -> Result:
    return CliRunner().invoke(root, [*map(str, words)])


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A folder with a backup from before, a receipt of ana and one of ben's session; the store is gone."""
    store = tmp_path / "agent.db"
    (tmp_path / "receipts").mkdir()
    with opened(store, background=False) as ana, opened(store, user="ben", background=False) as ben:
        fill(ana)
        ben.remember("Ben lives in Oslo.")
        ben.add_message("user", f"Ben says {WORD} on monday.", session="monday")
        ana.backup(tmp_path / "b1.db")
        for name, done in (("ana", ana.erase(user="ana")), ("ben", ben.erase(session="monday"))):
            (tmp_path / "receipts" / f"{name}.json").write_text(str(done.receipt))
        ana.backup(tmp_path / "b2.db")
    for file in tmp_path.glob("agent.db*"):
        file.unlink()
    return tmp_path


def test_who_was_erased_stays_out_though_the_store_is_lost(lost: Path) -> None:
    goal = lost / "new" / "agent.db"
    goal.parent.mkdir()
    told = run("restore", lost / "b1.db", goal, "--receipts", lost / "receipts", "--json")
    assert told.exit_code == 0, told.output
    assert all(json.loads(told.output)["receipts"].values())
    assert found(goal.parent) == {}
    with opened(goal, background=False) as ana, opened(goal, user="ben", background=False) as ben:
        assert ana.list() == []
        assert [one.text for one in ben.list()] == ["Ben lives in Oslo."]
        for name in ("ana", "ben"):
            seen = ana.verify_erasure((lost / "receipts" / f"{name}.json").read_text())
            assert not any(seen.rows.values())
        assert ana.verify_audit().faults == ()


def test_a_backup_that_knows_of_the_erasure_keeps_what_was_said_since(lost: Path) -> None:
    restore_backup(lost / "b2.db", lost / "again.db", alone=True)
    with opened(lost / "again.db", background=False) as ana:
        ana.remember("Ana is back.")
        ana.backup(lost / "b3.db")
    done = restore_backup(lost / "b3.db", lost / "third.db", against=read_receipts([lost / "receipts"]))
    assert not any(done.receipts.values())
    with opened(lost / "third.db", background=False) as ana:
        assert [one.text for one in ana.list()] == ["Ana is back."]


def test_a_receipt_of_another_store_takes_nothing_out_and_that_is_said(lost: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "other.db", background=False) as other:
        other.remember("Ana lives in Lima.")
        (tmp_path / "other.json").write_text(str(other.erase(user="ana").receipt))
    told = run("restore", lost / "b1.db", lost / "a.db", "--receipts", tmp_path / "other.json")
    assert (told.exit_code, "of this store" in told.output) == (0, True)
    with opened(lost / "a.db", background=False) as ana:
        assert ana.list() != []


def test_what_is_no_receipt_is_refused_before_anything_is_restored(lost: Path) -> None:
    whole = json.loads((lost / "receipts" / "ana.json").read_text())
    wrong = [
        "{}",
        "[" * 100_000,
        json.dumps({**whole, "by": "everybody"}),
        json.dumps({**whole, "asked_at": "yesterday"}),
        json.dumps({**whole, "asked_at": "2026-01-01T00:00:00"}),
        json.dumps({**whole, "receipt": None}),
        json.dumps({**whole, "audit": {"n": 1 << 80, "hash": ""}}),
    ]
    for text in wrong:
        (lost / "receipts" / "wrong.json").write_text(text)
        told = run("restore", lost / "b1.db", lost / "a.db", "--receipts", lost / "receipts")
        assert (told.exit_code, "wrong.json" in told.output) == (1, True), text[:80]
        assert not (lost / "a.db").exists()
    (lost / "empty").mkdir()
    for place in ("empty", "none.json"):
        with pytest.raises(InvalidInput):
            read_receipts([lost / place])


def test_who_restores_alone_is_asked_for_receipts(lost: Path) -> None:
    told = run("restore", lost / "b1.db", lost / "a.db", "--alone")
    assert (told.exit_code, "--receipts FILE" in told.output) == (0, True)
    both = run("restore", lost / "b1.db", lost / "c.db", "--receipts", lost / "receipts", "--against", lost / "a.db")
    assert (both.exit_code, "leave out --against" in both.output) == (2, True)
