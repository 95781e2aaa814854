"""After a store is lost, the receipts that were kept outside of it keep the erased out of what a backup brings back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from erasing_kit import WORD, erase_from, fill, found, opened

from engrain import InvalidInput, restore_backup
from engrain.cli.main import root
from engrain.stores.relational import remaining_rows


def run(*words: object) -> Result:
    return CliRunner().invoke(root, [*map(str, words)])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store is there by default."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A folder with a backup from before, a receipt of ana and one of ben's session; the store is gone."""
    store = tmp_path / "agent.db"
    (tmp_path / "receipts").mkdir()
    with opened(store, background=False) as ana, opened(store, user="ben", background=False) as ben:
        fill(ana)
        ben.remember("Ben lives in Oslo.")
        ben.add_message("user", f"Ben says {WORD} on monday.", session="monday")
        ana.store.backup(tmp_path / "b1.db")
        for name, done in (("ana", ana.store.erase(user="ana")), ("ben", ben.erase(session="monday"))):
            (tmp_path / "receipts" / f"{name}.json").write_text(str(done.receipt))
        ana.store.backup(tmp_path / "b2.db")
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
            seen = ana.store.verify_erasure((lost / "receipts" / f"{name}.json").read_text())
            assert not any(seen.rows.values())
        assert ana.store.verify_audit().faults == ()


def test_a_backup_that_knows_of_the_erasure_keeps_what_was_said_since(lost: Path) -> None:
    restore_backup(lost / "b2.db", lost / "again.db")
    with opened(lost / "again.db", background=False) as ana:
        ana.remember("Ana is back.")
        ana.store.backup(lost / "b3.db")
    done = restore_backup(lost / "b3.db", lost / "third.db", receipts=[lost / "receipts"])
    assert not any(done.receipts.values())
    with opened(lost / "third.db", background=False) as ana:
        assert [one.text for one in ana.list()] == ["Ana is back."]


def test_a_receipt_of_another_store_takes_nothing_out_and_that_is_said(lost: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "other.db", background=False) as other:
        other.remember("Ana lives in Lima.")
        (tmp_path / "other.json").write_text(str(other.store.erase(user="ana").receipt))
    told = run("restore", lost / "b1.db", lost / "a.db", "--receipts", tmp_path / "other.json")
    assert (told.exit_code, "belongs to another store" in told.output) == (0, True)
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
        json.dumps({**whole, "receipt": "Ana lives in Lima."}),
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
            restore_backup(lost / "b1.db", lost / "a.db", receipts=[lost / place])


def test_what_may_be_back_is_said_plainly(lost: Path) -> None:
    told = run("restore", lost / "b1.db", lost / "a.db")
    assert (told.exit_code, "forgotten after this backup may be back" in told.output) == (0, True)
    assert "--receipts FILE" in told.output
    with opened(lost / "a.db", background=False) as ana:
        assert ana.store.audit()[-1].details["may_hold_forgotten"] is True


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    """A folder with a store, a backup from before, and what the store knows since: bo's item is forgotten, ana erased,
    and you get a receipt of that."""
    store = tmp_path / "h.db"
    with opened(store, background=False) as ana, opened(store, user="bo", background=False) as bo:
        fill(ana)
        bo.remember("Bo lives in Bergen.")
        item = bo.remember("Bo has a secret.")
        ana.store.backup(tmp_path / "hb.db")
        bo.forget(item)
        (tmp_path / "ana.json").write_text(str(ana.store.erase(user="ana").receipt))
    return tmp_path


def kept(store: Path) -> tuple[list[str], list[str]]:
    """What bo's memory says, and what the log tells."""
    with opened(store, user="bo", background=False) as bo:
        return [one.text for one in bo.list()], [one.what for one in bo.store.audit(after=0)]


def test_the_replaced_store_is_asked_beside_the_receipts(healthy: Path) -> None:
    with opened(healthy / "h.db", user="cleo", background=False) as cleo:
        cleo.store.backup(healthy / "older.db")  # a copy of the store that does not know of the next erasure
        (healthy / "older.db.json").unlink()
        (healthy / "bo.json").write_text(str(cleo.store.erase(user="bo").receipt))
    wanted = {"h.db": ["ana.json"], "older.db": ["bo.json"]}
    for name, receipts in wanted.items():
        named = [word for receipt in receipts for word in ("--receipts", healthy / receipt)]
        told = run("restore", healthy / "hb.db", healthy / name, "--force", "--yes", *named, "--json")
        assert told.exit_code == 0, told.output
        answer = json.loads(told.output)
        assert (answer["may_hold_forgotten"], all(answer["receipts"].values())) == (False, True)
        texts, log = kept(healthy / name)
        assert texts == [], name
        assert {"forget", "erase", "restore"} <= set(log), name
        with opened(healthy / name, background=False) as ana:
            assert (ana.list(), ana.store.verify_audit().faults) == ([], ())


def test_receipts_keep_the_erased_out_of_a_store_that_was_damaged_beyond_reading(healthy: Path) -> None:
    (healthy / "h.db").write_bytes(b"\0" * 8192)
    told = run("restore", healthy / "hb.db", healthy / "h.db", "--force", "--yes", "--receipts", healthy / "ana.json")
    assert (told.exit_code, "may be back: no readable store" in told.output) == (0, True), told.output
    with opened(healthy / "h.db", background=False) as ana:
        assert ana.list() == []
    assert "Bo has a secret." in kept(healthy / "h.db")[0], "it was only forgotten"


def test_what_a_new_path_does_not_know_is_removed_by_a_replay(healthy: Path) -> None:
    restore_backup(healthy / "hb.db", healthy / "new.db")
    assert "Bo has a secret." in kept(healthy / "new.db")[0]
    told = run("replay", healthy / "new.db", "--against", healthy / "h.db", "--receipts", healthy / "ana.json")
    assert told.exit_code == 0, told.output
    assert kept(healthy / "new.db")[0] == ["Bo lives in Bergen."]
    with opened(healthy / "new.db", background=False) as ana:
        assert ana.list() == []
    for wrong in ((), ("--against", healthy / "none.db")):
        assert run("replay", healthy / "new.db", *wrong).exit_code != 0


@pytest.mark.parametrize("way", ["restore", "replay"])
def test_a_receipt_that_was_carried_over_holds(lost: Path, way: str) -> None:
    goal, receipt = lost / "a.db", lost / "receipts" / "ana.json"
    if way == "restore":
        told = run("restore", lost / "b1.db", goal, "--receipts", lost / "receipts")
    else:
        restore_backup(lost / "b1.db", goal)
        told = run("replay", goal, "--receipts", lost / "receipts")
    assert told.exit_code == 0, told.output
    ids = [json.loads((lost / "receipts" / f"{name}.json").read_text())["receipt"] for name in ("ana", "ben")]
    assert f"receipts {ids[0]} and {ids[1]}" in run("--store", goal, "audit").output
    for name in ("ana", "ben"):
        seen = run("--store", goal, "erase", "verify", lost / "receipts" / f"{name}.json")
        assert (seen.exit_code, "carried over by a restore of 20" in seen.output) == (0, True), seen.output
    other = {**json.loads(receipt.read_text()), "counts": {"item": 0}}
    receipt.write_text(json.dumps(other))
    seen = run("--store", goal, "erase", "verify", receipt)
    assert (seen.exit_code, "the file was changed" in seen.output) == (1, True), seen.output


def test_a_receipt_that_no_restore_was_given_does_not_hold(lost: Path) -> None:
    restore_backup(lost / "b1.db", lost / "a.db", receipts=[lost / "receipts" / "ana.json"])
    seen = run("--store", lost / "a.db", "erase", "verify", lost / "receipts" / "ben.json")
    assert (seen.exit_code, "no receipt of this id" in seen.output) == (1, True), seen.output


def test_many_receipts_are_looked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = ("monday", "tuesday", "friday")
    with opened(tmp_path / "agent.db", background=False) as ana:
        for count, day in enumerate(days, 1):
            for n in range(count):
                ana.add_message("user", f"On {day} {n}.", session=day)
        ana.remember("Lima is large.", source="page.html")
        one = ana.remember("Ana likes tea.")
        ana.store.backup(tmp_path / "b.db")
        asked = [*({"session": day} for day in days), {"source": "page.html"}, {"id": one}, {"user": "ana"}]
        kept = [str(erase_from(ana, **each).receipt) for each in asked]
    looks: list[str] = []
    subjects = remaining_rows.load_subjects

    def counted(*given: Any) -> Any:
        looks.append(given[-1])
        return subjects(*given)

    monkeypatch.setattr(remaining_rows, "load_subjects", counted)
    for receipts in (kept[:1], kept):
        for n, receipt in enumerate(receipts):
            (tmp_path / f"{n}.json").write_text(receipt)
        paths = [tmp_path / f"{n}.json" for n in range(len(receipts))]
        looks.clear()
        told = restore_backup(tmp_path / "b.db", tmp_path / f"{len(receipts)}.db", receipts=paths)
        removing = ["id", "session", "source"]  # in what the backup brings back
        assert sorted(looks) == sorted(["session", *removing] if len(receipts) == 1 else removing)
    by_receipt = [told.receipts[json.loads(each)["receipt"]] for each in kept]
    assert [bool(count) for count in by_receipt[:3]] == [True] * 3
    assert by_receipt[0] < by_receipt[1] < by_receipt[2], "each by its own session"
    assert by_receipt[5] > sum(by_receipt[:3]), "the user has them all"


def test_a_restore_says_in_words_how_many_items_came_back(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    with opened(store, background=False) as memory:
        memory.remember("Ana likes tea.")
        memory.store.backup(tmp_path / "one.db")
        memory.remember("Ana lives in Lima.")
        memory.store.backup(tmp_path / "two.db")
    with pytest.raises(InvalidInput, match=r"force=True \(--force\)"):
        restore_backup(tmp_path / "one.db", store)
    told = [str(restore_backup(tmp_path / name, store, force=True)) for name in ("one.db", "two.db")]
    assert "agent.db: the only item in the backup of " in told[0]
    assert "agent.db: all 2 items in the backup of " in told[1]
