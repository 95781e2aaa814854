"""A legal hold has as many reasons as were given, and knows whom it is on."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.cli.main import root
from engrain.core.errors import Conflict, InvalidInput, OnHold, StoreUnavailable
from engrain.factory import open_whole_store
from engrain.privacy.erasure_requests import make_user_subject
from engrain.stores.relational.audit import Audit
from engrain.transfer.copy import copy


def opened(path: Path, **who: str) -> Memory:
    return Memory(path, embedder=HashEmbedder(), background=False, **who)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with opened(tmp_path / "agent.db", user="ana") as memory:
        memory.remember("Ana lives in Lima.")
    return tmp_path / "agent.db"


def test_the_end_of_one_case_does_not_end_another(store: Path) -> None:
    with opened(store) as memory:
        memory.store.hold("ana", reason="case-7")
        assert memory.store.hold("ana", reason="case-8").reasons == ("case-7", "case-8")
        assert memory.store.release("ana", reason="case-7")
        with pytest.raises(OnHold, match="case-8"):
            memory.store.erase(user="ana")
        assert not memory.store.release("ana", reason="case-7")
        assert memory.store.release("ana", reason="case-8")
        assert memory.store.erase(user="ana").receipt


def test_a_release_that_leaves_open_which_case_is_refused_with_all_of_them(store: Path) -> None:
    with opened(store) as memory:
        memory.store.hold("ana", reason="case-7")
        memory.store.hold("ana", reason="case-8")
        with pytest.raises(Conflict, match="case-7, case-8"):
            memory.store.release("ana")
        assert [one.reasons for one in memory.store.holds()] == [("case-7", "case-8")]


def test_several_cases_end_together_or_not_at_all(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = Audit.write

    def failing(self: Audit, db: Any, what: str, *rest: Any) -> Any:
        written.append(what)
        if written.count("release") == 2:
            raise StoreUnavailable("the machine is gone.")
        return write(self, db, what, *rest)

    with opened(store) as memory:
        memory.store.hold("ana", reason="case-7")
        memory.store.hold("ana", reason="case-8")
        monkeypatch.setattr(Audit, "write", failing)
        with pytest.raises(StoreUnavailable):
            memory.store.release("ana", reason=["case-7", "case-8"])
        assert [one.reasons for one in memory.store.holds()] == [("case-7", "case-8")]
        assert not memory.store.release("ana", reason=["case-7", "case-9"])
        assert memory.store.release("ana", reason=["case-7", "case-8"]).left == ()
        assert memory.store.holds() == []
        assert [entry.what for entry in memory.store.audit()] == ["hold", "hold", "release", "release"]


def test_a_command_releases_nothing_if_somebody_has_released_one_of_its_reasons_since(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store) as memory:
        memory.store.hold("ana", reason="case-7")
        memory.store.hold("ana", reason="case-8")
        holds = Store.holds

        def looked(self: Store, **named: Any) -> Any:
            found = holds(self, **named)
            memory.store.release("ana", reason="case-8")
            return found

        monkeypatch.setattr(Store, "holds", looked)
        both = ["--user", "ana", "--release", "--reason", "case-7", "--reason", "case-8"]
        failed = CliRunner().invoke(root, ["--store", str(store), "hold", *both])
        monkeypatch.undo()
        assert (failed.exit_code, "nothing was released" in failed.stderr) == (1, True)
        assert [one.reasons for one in memory.store.holds()] == [("case-7",)]


@pytest.mark.parametrize("reason", ["case 9", "", "Ana was rude to our staff", "x" * 65])
def test_a_reason_that_is_no_code_word_is_refused_while_held_too(store: Path, reason: str) -> None:
    with opened(store) as memory:
        for _ in range(2):
            with pytest.raises(InvalidInput, match="a code word such as case-7"):
                memory.store.hold("ana", reason=reason)
            memory.store.hold("ana", reason="case-7")
        assert [entry.what for entry in memory.store.audit()] == ["hold"]


def test_who_is_held_is_named_in_every_tenant_hidden_or_not(store: Path) -> None:
    with opened(store, user="kim", tenant="acme") as kim:
        kim.remember("Kim lives in Rome.")
        kim.store.hold("kim", tenant="acme", reason="case-9")
        with pytest.raises(OnHold, match=r"engrain hold --tenant acme --user kim --release --reason case-9$"):
            kim.store.erase(user="kim", tenant="acme")
    with opened(store) as memory:
        assert memory.store.hold("ana", reason="case-7").user == "ana"
        assert memory.store.hold("nobody", reason="case-7").user is None
        told = {(one.tenant, one.user, one.hidden) for one in memory.store.holds()}
    assert told == {(None, "ana", False), (None, None, False), ("acme", "kim", True)}


def test_a_status_tells_what_is_hidden_from_what_is_empty(store: Path) -> None:
    with opened(store, user="ana") as memory:
        assert memory.store.status(memory.scope).hold is None
        memory.store.hold("ana", reason="case-7")
        held = memory.store.status(memory.scope).hold
        assert held
        assert not held.hidden
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
        hidden = memory.store.status(memory.scope)
        assert hidden.items == 0
        assert hidden.hold
        assert hidden.hold.hidden


def test_reasons_come_along_with_a_copy(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.store.hold("ana", reason="case-7")
        memory.store.hold("ana", reason="case-8")
    with closing(open_whole_store(store)) as source, closing(open_whole_store(tmp_path / "copy.db")) as target:
        copy(source, target, lambda _: None)
    with opened(tmp_path / "copy.db") as copied:
        assert [one.reasons for one in copied.store.holds()] == [("case-7", "case-8")]


def test_a_hold_stops_an_erasure_that_was_cut_off_before_anything_went_and_no_other(store: Path) -> None:
    with opened(store) as memory, opened(store, user="ben") as ben:
        ben.remember("Ben lives in Rome.")
        erasing = memory.store.services.erasing
        assert erasing is not None
        for name in ("ana", "ben"):
            erasing.begin(name, make_user_subject(memory.scope.tenant, name))
        memory.store.hold("ana", reason="case-7")
        ana, other = memory.store.resume_erasures()
        assert "case-7" in ana.why
        assert (ana.receipt, ana.over, ana.pending) == (None, True, False)
        assert other.receipt
        assert memory.store.release("ana")
    with opened(store, user="ana") as memory:
        assert [item.text for item in memory.list()] == ["Ana lives in Lima."]


def test_a_load_under_a_hold_comes_in_and_joins_nothing(store: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    with opened(store, user="ana") as memory, opened(tmp_path / "other.db", user="ana") as other:
        memory.episodic.record_error("No route to host.", session="monday")
        memory.export(first)
        other.load(first)
        memory.episodic.record_error("No route to host.", session="monday")
        memory.export(second)
        other.store.hold("ana", reason="case-7")
        assert other.load(second).rows["episode"] == 1
        assert sorted(one.count for one in other.episodic.recent(9)) == [1, 2]
        assert other.store.audit(limit=1)[0].what == "load"
        other.store.release("ana")
        other.load(second)
        assert [one.count for one in other.episodic.recent(9)] == [2]


def test_a_release_tells_of_the_erasure_that_was_refused_meanwhile(store: Path) -> None:
    with opened(store, user="ana") as memory:
        memory.remember("Ana likes tea.")
        memory.store.hold("ana", reason="case-7")
        memory.store.hold("ana", reason="case-8")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
        first = memory.store.release("ana", reason="case-7")
        assert (first.done, first.left, first.refused) == (True, ("case-8",), None)
        last = memory.store.release("ana")
        (asked,) = [one.at for one in memory.store.audit() if one.what == "erase_refused"]
        assert (last.done, last.left, last.refused) == (True, (), asked)
        assert not memory.store.release("ana")
        memory.store.hold("ana")
        assert memory.store.release("ana").refused is None, "nobody asked since"
