"""Slips on the command line of `engrain erase` are told before anything goes, and no receipt is lost."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import StoreUnavailable
from engrain.privacy import erase


def keep(store: Path, text: str, user: str = "ana", **who: Any) -> None:
    with Memory(store, user=user, embedder=HashEmbedder(), background=False, **who) as memory:
        memory.remember(text)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    keep(path, "Ana lives in Lima, near the harbour.")
    return path


def run(store: Path, *words: object) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *map(str, words)])


def raising(error: BaseException) -> Callable[..., Any]:
    def stop(*_: Any, **__: Any) -> Any:
        raise error

    return stop


@pytest.fixture
def pending(store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The erasures of two users wait to be completed."""
    keep(store, "Ben lives in Oslo.", "ben")
    with monkeypatch.context() as patched:
        patched.setattr(erase, "_verify_and_finish", raising(StoreUnavailable("away")))
        for user in ("ana", "ben"):
            told = run(store, "erase", "--user", user, "--yes")
            command = shlex.join(["--resume", "--user", user, "--store", str(store)])
            assert (told.exit_code, f"engrain erase {command}" in told.output) == (1, True)
    return store


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_mistyped_user_is_told_and_leaves_no_receipt(store: Path, tmp_path: Path, yes: tuple[str, ...]) -> None:
    receipt = tmp_path / "r.json"
    told = run(store, "erase", "--user", "anna", *yes, *(("--receipt", receipt) if yes else ()))
    assert (told.exit_code, "Did you mean 'ana'?" in told.output) == (1, True)
    assert not receipt.exists()
    assert "nothing was erased" in run(store, "erase", "receipt").output


@pytest.mark.parametrize("place", ["nodir/r.json", "taken.json"])
def test_a_receipt_that_cannot_be_written_is_told_before_anything_goes(store: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "taken.json").write_text("mine")
    told = run(store, "erase", "--user", "ana", "--yes", "--receipt", tmp_path / place)
    assert told.exit_code == 1
    assert "Lima" in run(store, "list", "--user", "ana").output
    assert (tmp_path / "taken.json").read_text() == "mine"


def test_a_receipt_is_for_its_owner_alone(store: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "r.json"
    assert f"in {receipt}." in run(store, "erase", "--user", "ana", "--yes", "--receipt", receipt).output
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600


def test_a_receipt_without_yes_is_wrong_usage(store: Path, tmp_path: Path) -> None:
    told = run(store, "erase", "--user", "ana", "--receipt", tmp_path / "r.json")
    assert (told.exit_code, "--receipt needs --yes" in told.output) == (2, True)
    assert not (tmp_path / "r.json").exists()


def test_a_receipt_whose_writing_fails_all_the_same_is_in_the_audit_log(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("engrain.cli.commands.privacy._create_receipt_file", lambda _: open("/dev/full", "w"))  # noqa: SIM115
        told = run(store, "erase", "--user", "ana", "--yes", "--receipt", tmp_path / "r.json")
    id = json.loads(run(store, "erase", "receipt").output)["receipt"]
    assert (told.exit_code, "No space left" in told.output, f"Receipt {id}" in told.output) == (1, True, True)


def test_resumed_erasures_name_their_receipts(pending: Path, tmp_path: Path) -> None:
    told = run(pending, "erase", "--resume")
    assert told.exit_code == 0, told.output
    ids = re.findall(r"Receipt (\w+)\.", told.output)
    assert len(ids) == 2
    for id in ids:
        (tmp_path / id).write_text(run(pending, "erase", "receipt", id).output)
        assert run(pending, "erase", "verify", tmp_path / id).exit_code == 0
    assert "No erasure is running." in run(pending, "erase", "--resume").output


def test_asking_again_completes_the_erasure_under_way(pending: Path, tmp_path: Path) -> None:
    assert run(pending, "erase", "--user", "ana", "--yes", "--receipt", tmp_path / "r.json").exit_code == 0
    assert len(json.loads(run(pending, "erase", "--resume", "--json").output)) == 1


def test_a_receipt_is_printed_out_of_the_audit_log(store: Path, tmp_path: Path) -> None:
    assert "nothing was erased" in run(store, "erase", "receipt").output
    keep(store, "Ben lives in Oslo.", "ben")
    first = run(store, "erase", "--user", "ana", "--yes")
    id = json.loads(run(store, "erase", "receipt").output)["receipt"]
    assert (
        f"{shlex.join(['engrain', 'erase', 'receipt', id, '--user', 'ana', '--store', str(store)])} > FILE"
        in first.output
    )
    run(store, "erase", "--user", "ben", "--yes")
    last = json.loads(run(store, "erase", "receipt").output)["receipt"]
    assert last != id
    for form in ((), ("--json",)):
        given = run(store, "erase", "receipt", id, *form)
        assert id in given.output
        (tmp_path / "r.json").write_text(given.output)
        assert run(store, "erase", "verify", tmp_path / "r.json").exit_code == 0
    assert run(store, "erase", "receipt", "none").exit_code == 1


def test_one_agent_alone_cannot_be_asked_for(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, "Ana buys tea.", agent="sales")
    for words in (("erase", "--user", "ana", "--agent", "sales"), ("--agent", "sales", "erase", "--user", "ana")):
        told = run(store, *words, "--yes")
        assert (told.exit_code, "every agent" in told.output) == (2, True)
    assert "tea" in run(store, "list", "--user", "ana", "--agent", "sales").output
    monkeypatch.setenv("ENGRAIN_AGENT", "sales")
    shown = run(store, "erase", "--user", "ana")
    assert (shown.exit_code, "all agents: (none), sales." in shown.output) == (0, True)


@pytest.mark.parametrize("stage", ["_delete_rows", "_verify_and_finish"])
def test_who_stops_an_erasure_is_told_how_to_complete_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    receipt = tmp_path / "r.json"
    with monkeypatch.context() as patched:
        patched.setattr(erase, stage, raising(KeyboardInterrupt()))
        told = run(store, "erase", "--user", "ana", "--yes", "--receipt", receipt)
    assert told.exit_code == 130
    assert not receipt.exists()
    words = shlex.split(told.output.partition("Complete it now: engrain ")[2])
    assert words == ["erase", "--resume", "--user", "ana", "--store", str(store)]
    assert CliRunner().invoke(root, words).exit_code == 0


def test_a_second_look_says_what_is_wrong(store: Path, tmp_path: Path) -> None:
    receipt, other = tmp_path / "r.json", tmp_path / "other.db"
    run(store, "erase", "--user", "ana", "--yes", "--receipt", receipt)
    keep(other, "Eve lives in Rome.", "eve")
    elsewhere = run(other, "erase", "verify", receipt)
    assert (elsewhere.exit_code, "from another store" in elsewhere.output) == (1, True)
    changed = tmp_path / "changed.json"
    changed.write_text(receipt.read_text().replace('"item": 1', '"item": 3'))
    edited = run(store, "erase", "verify", changed)
    assert (edited.exit_code, "the file was changed" in edited.output) == (1, True)
    with sqlite3.connect(store) as db:
        db.execute("update audit set details = replace(details, '\"item\":1', '\"item\":4')")
    db.close()
    broken = run(store, "erase", "verify", receipt)
    assert (broken.exit_code, "engrain audit verify" in broken.output) == (1, True)
    assert "the file was changed" not in broken.output


def test_words_that_others_say_are_not_taken_for_a_proof(store: Path, tmp_path: Path) -> None:
    keep(store, "Somebody lives in Lima, near the harbour.", "ben")
    run(store, "erase", "--user", "ana", "--yes", "--receipt", tmp_path / "r.json")
    told = run(store, "erase", "verify", tmp_path / "r.json", "--text", "lives in Lima, near the harbour.")
    assert (told.exit_code, "may have the same words" in told.output) == (1, True)


def test_under_a_hold_a_dry_run_is_refused_too(store: Path) -> None:
    run(store, "hold", "--user", "ana", "--reason", "case-7")
    told = run(store, "erase", "--user", "ana")
    assert (told.exit_code, "case-7" in told.output, "Add --yes" in told.output) == (1, True, False)
    assert "Lima" in run(store, "list", "--user", "ana").output


def test_both_runs_count_in_one_order_and_name_no_backups_that_were_not_made(store: Path) -> None:
    with Memory(store, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.add_message("user", "Good morning to all of you.", session="monday")
        with memory.task("order") as task:
            task.step("one", lambda: 1)
    shown = run(store, "erase", "--user", "ana").output
    done = run(store, "erase", "--user", "ana", "--yes").output
    counts = shown.splitlines()[0].removeprefix("Would erase: ")
    assert done.splitlines()[0] == f"Erased: {counts}"
    assert counts.startswith("1 memory, 2 items")
    assert ("1 task," in counts, "backups" in done) == (True, False)


def test_the_receipt_of_a_user_who_is_named_is_theirs(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(store, "Ben lives in Oslo.", "ben")
    done = {user: json.loads(run(store, "erase", "--user", user, "--yes", "--json").output) for user in ("ana", "ben")}
    ids = {user: told["id"] for user, told in done.items()}
    assert json.loads(run(store, "erase", "receipt").output)["receipt"] == ids["ben"], "the last one"
    for user in ("ana", "ben"):
        assert json.loads(run(store, "erase", "receipt", "--user", user).output)["receipt"] == ids[user]
    with monkeypatch.context() as patched:
        patched.setenv("ENGRAIN_USER", "ana")
        assert json.loads(run(store, "erase", "receipt").output)["receipt"] == ids["ben"], "nobody asked for hers"
    missing = run(store, "erase", "receipt", "--user", "anna")
    assert (missing.exit_code, "no receipt of the user 'anna'" in missing.output) == (1, True), missing.output


@pytest.mark.parametrize("by", ["session", "source", "id"])
def test_a_part_that_is_asked_for_again_gets_the_receipt_that_the_dry_run_promises(store: Path, by: str) -> None:
    with Memory(store, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.add_message("user", "I live in Lima.", session="monday")
        name = {"session": "monday", "source": "page", "id": memory.remember("Ana has a cat.", source="page")}[by]
    asked = "erase", "--user", "ana", f"--{by}", name
    assert run(store, *asked, "--yes").exit_code == 0
    assert "you get a receipt" in run(store, *asked).output
    again = run(store, *asked, "--yes", "--json")
    assert (again.exit_code, json.loads(again.output)["receipt"] is not None) == (0, True), again.output
    for yes in ((), ("--yes",)):
        never = run(store, "erase", "--user", "ana", f"--{by}", "tuesday", *yes)
        assert (never.exit_code, "has no data of this" in never.output) == (1, True), never.output


def test_the_place_of_care_is_no_tenant(store: Path) -> None:
    run(store, "maintain")
    told = run(store, "erase", "--user", "anna")
    assert (told.exit_code, "'anna' in this store" in told.output) == (1, True), told.output
    assert run(store, "memories").output == "user=ana: 1 item\n"


def test_an_erasure_that_a_hold_ended_is_not_said_to_go_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(erase, "_delete_rows", raising(KeyboardInterrupt()))
        run(store, "erase", "--user", "ana", "--yes")
    assert run(store, "hold", "--user", "ana", "--reason", "case-7").exit_code == 0
    told = run(store, "erase", "--resume")
    assert (told.exit_code, "Not erased: a legal hold (case-7)" in told.output) == (1, True)
    assert "The erasure was cancelled" in told.output
    assert "by itself" not in told.output
    again = run(store, "erase", "--resume")
    assert (again.exit_code, again.output) == (0, "No erasure is running.\n")


def test_what_an_erasure_and_a_second_look_found_reads_as_sentences(store: Path) -> None:
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        assert str(memory.store.erase(user="ana", dry_run=True)).startswith("Would erase: 1 memory, ")
        done = memory.store.erase(user="ana")
        erased, looked = str(done).splitlines()
        assert done.receipt is not None
        verified = memory.store.verify_erasure(done.receipt, texts=["Ana lives in Lima."])
    assert erased.startswith("Erased: 1 memory, ")
    assert looked.startswith("Verified: no row is left, and none of ")
    assert str(verified).splitlines() == [
        "No row is left from before the erasure.",
        "No trace of the given texts in any file.",
        "The audit log holds this receipt.",
        "It still holds.",
    ]
