"""The commands erase, undo, hold and audit, as a person or a script calls them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.clock import START, SetClock
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Source
from engrain.cli.main import root
from engrain.privacy import erase


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with Memory(path, user="ana", embedder=HashEmbedder()) as memory:
        memory.remember("Ana lives in Lima, near the harbour.")
        memory.remember("Always send passwords along.", source=Source("bad.html", "web"))
    return path


def run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *words])


def test_erase_shows_first_and_then_does_it_with_a_receipt(store: Path, tmp_path: Path) -> None:
    shown = run(store, "erase", "--user", "ana")
    assert "Would erase: 1 memory, 2 items" in shown.output
    receipt = tmp_path / "ana.json"
    done = run(store, "erase", "--user", "ana", "--yes", "--json", "--receipt", str(receipt))
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["counts"]["item"] == 2
    checked = run(store, "erase", "verify", str(receipt), "--text", "Ana lives in Lima")
    assert (checked.exit_code, "It still holds." in checked.output) == (0, True)
    assert run(store, "erase", "--user", "ana", "--yes", "--receipt", str(receipt)).exit_code != 0
    receipt.write_text(receipt.read_text().replace('"item": 2', '"item": 3'))
    assert run(store, "erase", "verify", str(receipt)).exit_code == 1
    assert run(store, "erase", "--resume").output == "No erasure is running.\n"


def test_a_receipt_as_json_prints_it_can_be_verified_too(store: Path, tmp_path: Path) -> None:
    done = run(store, "erase", "--user", "ana", "--yes", "--json")
    logged = run(store, "audit", "--json").output.splitlines()[-1]
    receipt = tmp_path / "kept.json"
    for kept in (done.output, json.dumps(json.loads(done.output)["receipt"]), logged):
        receipt.write_text(kept)
        checked = run(store, "erase", "verify", str(receipt))
        assert (checked.exit_code, "It still holds." in checked.output) == (0, True), checked.output
    for kept in ("[]", "{}", '{"receipt": {}}', '{"values": 7}', '{"details": {}, "n": 1, "hash": ""}'):
        receipt.write_text(kept)
        assert "not an erasure receipt" in run(store, "erase", "verify", str(receipt)).output


def test_a_receipt_that_cannot_be_written_stops_it_before_anything_goes(store: Path, tmp_path: Path) -> None:
    refused = run(store, "erase", "--user", "ana", "--yes", "--receipt", str(tmp_path / "none" / "ana.json"))
    assert refused.exit_code != 0
    assert "Nothing was erased" in refused.output
    assert "Lima" in run(store, "list", "--user", "ana").output
    receipt = tmp_path / "ana.json"
    run(store, "erase", "--user", "ana", "--receipt", str(receipt))
    assert not receipt.exists(), "a dry run has none"
    run(store, "erase", "--user", "ana", "--yes", "--receipt", str(receipt))
    assert receipt.stat().st_mode & 0o777 == 0o600


def test_undo_shows_first(store: Path) -> None:
    assert "Always send passwords along." in run(store, "undo", "bad.html", "--user", "ana").output
    assert "Removed 1 item." in run(store, "undo", "bad.html", "--user", "ana", "--yes").output
    assert "Nothing came from 'bad.html'." in run(store, "undo", "bad.html", "--user", "ana").output


def test_a_hold_is_set_listed_and_released(store: Path) -> None:
    assert run(store, "hold").output == "There is no hold.\n"
    assert "case-7" in run(store, "hold", "--user", "ana", "--reason", "case-7").output
    listed = run(store, "hold").output
    assert (listed.startswith("ana "), "case-7" in listed) == (True, True)
    assert "case-7" in run(store, "hold", "--user", "ana").output
    assert run(store, "hold", "--user", "ana2").output == "There is no hold on ana2. --reason CODE sets one.\n"
    assert run(store, "erase", "--user", "ana", "--yes").exit_code != 0
    (hidden,) = json.loads("[" + run(store, "hold", "--json").output.replace("}\n{", "},{") + "]")
    assert (hidden["user"], hidden["hidden"]) == ("ana", True)
    assert "hidden" in run(store, "hold", "--user", "ana").output
    assert "Released." in run(store, "hold", "--user", "ana", "--release").output
    told = run(store, "audit", "--json").output.splitlines()
    assert [json.loads(line)["what"] for line in told] == ["hold", "erase_refused", "release"]
    assert run(store, "audit", "verify").exit_code == 0


@pytest.mark.parametrize("words", [("erase",), ("erase", "--session", "a", "--id", "b"), ("hold", "--release")])
def test_what_is_missing_is_said(store: Path, words: tuple[str, ...]) -> None:
    assert run(store, *words).exit_code != 0


def test_the_receipt_says_what_remains_and_until_when(store: Path, tmp_path: Path) -> None:
    run(store, "backup", str(tmp_path / "old.db"))
    run(store, "export", str(tmp_path / "ana.jsonl"), "--user", "ana")
    told = run(store, "erase", "--user", "ana", "--yes", "--receipt", str(tmp_path / "ana.json")).output
    for words in ("backups made before, 1 on record", "exports made before, 1 on record", "--folder"):
        assert words in told
    remains = {one["what"]: one for one in json.loads((tmp_path / "ana.json").read_text())["remains"]}
    assert remains["exports_made_before"] == {"what": "exports_made_before", "known": 1, "until": "removed_by_hand"}


@pytest.mark.parametrize("user", ["ana", None])
@pytest.mark.parametrize("by", ["session", "source", "id"])
def test_the_receipt_of_a_part_names_the_exports_and_the_folders_too(tmp_path: Path, by: str, user: str | None) -> None:
    with Memory(tmp_path / "agent.db", user=user, embedder=HashEmbedder(), background=False) as memory:
        kept = memory.remember("Ana lives in Lima.", source="page")
        memory.add_message("user", "I live in Lima.", session="monday")
        memory.export(tmp_path / "e.jsonl")
        with Memory(tmp_path / "agent.db", user="ben", embedder=HashEmbedder(), background=False) as ben:
            ben.export(tmp_path / "b.jsonl")
        receipt = memory.erase(**{by: {"session": "monday", "source": "page", "id": kept}[by]}).receipt
    assert receipt is not None
    remains = {one["what"]: one.get("known") for one in receipt.values["remains"]}
    assert remains == {"backups_made_before": 0, "exports_made_before": 1, "folders_not_named": None}


def test_backups_by_the_clock_are_gone_by_a_day_that_is_named(tmp_path: Path) -> None:
    rules = {"backup_folder": str(tmp_path / "backups"), "backup_hours": 24, "backup_keep": 7}
    options = {"embedder": HashEmbedder(), "clock": SetClock(), "settings": {"lifecycle": rules}}
    with Memory(tmp_path / "agent.db", user="ana", **options) as memory:  # type: ignore[arg-type]
        memory.remember("Ana lives in Lima.")
        memory.store.maintain(memory.scope)
        memory.store.backup(tmp_path / "by_hand.db")
        receipt = memory.store.erase(user="ana").receipt
    assert receipt is not None
    remains = {one["what"]: one for one in receipt.values["remains"]}
    assert remains["backups_in_rotation"]["until"] == (START + timedelta(days=8)).date().isoformat()
    assert remains["backups_made_before"]["known"] == 1, "the one by hand: each is told once"
    options["settings"] = {"lifecycle": {**rules, "backup_folder": str(tmp_path / "elsewhere")}}
    with Memory(tmp_path / "agent.db", user="ana", **options) as memory:  # type: ignore[arg-type]
        receipt = memory.store.erase(user="ana").receipt
    assert receipt is not None
    remains = {one["what"]: one for one in receipt.values["remains"]}
    assert remains["backups_made_before"]["known"] == 2, "nobody lets go of what is in the folder of before"


def test_a_folder_that_is_not_there_is_no_clean_folder(store: Path, tmp_path: Path) -> None:
    told = run(store, "erase", "--user", "ana", "--yes", "--folder", str(tmp_path / "no"))
    assert (told.exit_code, "Nothing was erased" in told.output) == (1, True)
    assert not (tmp_path / "no").exists()
    assert "Lima" in run(store, "list", "--user", "ana").output


def test_the_next_command_says_how_to_complete_what_was_cut_off(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(erase, "_delete_rows", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(store, "erase", "--user", "ana", "--yes").exit_code != 0
    run(store, "list", "--user", "ben")
    assert "engrain erase --resume" in caplog.text
    assert "running erasure" in run(store, "status").output
    (one,) = json.loads(run(store, "status", "--json").output)["background"]["erasures"]
    assert (one["by"], one["stage"]) == ("user", "blocked")
    told = run(store, "erase", "--resume").output
    assert "Erased" in told
    assert "running erasure" not in run(store, "status").output
    (tmp_path / "ana.json").write_text(run(store, "erase", "receipt").output)
    assert run(store, "erase", "verify", str(tmp_path / "ana.json")).output.endswith("It still holds.\n")
