"""A slip in what is asked to be erased is told before anything goes, and nobody gets a receipt for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from erasing_kit import erase_from, opened
from redis_server import redis_server
from schemas import empty_store

from engrain import InvalidInput, Memory, NotFound
from engrain.core.errors import OnHold, StoreUnavailable
from engrain.core.model.erasure import Erasure
from engrain.privacy import erase as run
from engrain.privacy import erasure_requests

_numbers = count()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def memory(store: Path) -> Iterator[Memory]:
    with opened(store, background=False) as memory:
        memory.remember("Ana lives in Lima.")
        yield memory


@pytest.fixture
def url() -> Iterator[str]:
    with empty_store() as url:
        yield url


def cut_off(*_: object) -> None:
    raise StoreUnavailable("away")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_mistyped_user_gets_no_receipt_and_the_name_that_was_meant(memory: Memory, dry_run: bool) -> None:
    with pytest.raises(
        NotFound, match=r"user 'anna' in this store\. Did you mean 'ana'\? List the users: engrain memories"
    ):
        memory.store.erase(user="anna", dry_run=dry_run)
    with pytest.raises(NotFound, match="Did you mean 'ana'"):
        memory.store.erase(user="ANA", dry_run=dry_run)
    with pytest.raises(NotFound, match=r"user 'bob' in this store\. List the users: engrain memories"):
        memory.store.erase(user="bob", dry_run=dry_run)
    assert memory.store.audit() == []


def test_a_name_of_another_tenant_is_not_offered(memory: Memory, store: Path) -> None:
    with opened(store, user="eve", tenant="acme", background=False) as acme:
        acme.remember("Eve lives in Oslo.")
        with pytest.raises(NotFound, match=r"user 'anna' in the tenant 'acme'\. List the users: engrain memories"):
            acme.store.erase(user="anna", tenant="acme")
    with pytest.raises(NotFound, match=r"user 'eve' without a tenant\. List the users: engrain memories"):
        memory.store.erase(user="eve")


def test_who_was_erased_before_or_is_held_is_known(memory: Memory) -> None:
    memory.store.hold("carl", reason="case-7")
    with pytest.raises(OnHold):
        memory.store.erase(user="carl")
    assert memory.store.erase(user="ana").receipt
    assert memory.store.erase(user="ana", dry_run=True).memories == ()
    assert memory.store.erase(user="ana").receipt


def test_a_mistyped_user_in_postgres(url: str) -> None:
    with opened(url, background=False) as memory:
        memory.remember("Ana lives in Lima.")
        with pytest.raises(NotFound, match="Did you mean 'ana'"):
            memory.store.erase(user="anna")
        assert memory.store.erase(user="ana").receipt
        assert memory.store.erase(user="ana").receipt


def test_who_is_known_to_redis_alone_is_erased(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\ntasks = "{server.url}/1"\n')
    with opened(settings, background=False) as memory, opened(settings, user="ben", background=False) as ben:
        ben.remember("Ben lives in Oslo.")
        with memory.task("order") as task:
            task.step("one", lambda: 1)
        with pytest.raises(NotFound):
            ben.store.erase(user="anna")
        assert [one.user for one in ben.store.erase(user="ana", dry_run=True).memories] == ["ana"]
        done = ben.store.erase(user="ana")
        assert done.receipt, done.why
        assert done.receipt.values["counts"]["other_servers"] > 0


def test_a_folder_of_somebody_else_is_not_emptied(memory: Memory, store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    with opened(store, user="ben", background=False) as ben:
        ben.remember("Ben lives in Oslo.")
        ben.mirror(folder).sync()
        files = sorted(one.name for one in folder.rglob("*"))
        for dry_run in (True, False):
            with pytest.raises(InvalidInput, match="another memory"):
                memory.store.erase(user="ana", folders=[folder], dry_run=dry_run)
    assert sorted(one.name for one in folder.rglob("*")) == files
    assert memory.list() != []


def test_a_dry_run_names_the_memories_that_go(memory: Memory, store: Path) -> None:
    with opened(store, agent="sales", background=False) as sales:
        sales.remember("Ana buys tea.")
        found = sales.store.erase(user="ana", dry_run=True).memories
    assert [one.agent for one in found] == [None, "sales"]


def test_a_dry_run_under_a_hold_is_refused_as_the_real_one(memory: Memory) -> None:
    memory.add_message("user", "Hello.", session="monday")
    memory.store.hold("ana", reason="case-7")
    for chosen in ({"user": "ana"}, {"session": "monday"}):
        with pytest.raises(OnHold, match="case-7"):
            erase_from(memory, **chosen, dry_run=True)
    assert memory.list() != []
    assert [one.what for one in memory.store.audit()] == ["hold"]


def test_a_dry_run_of_a_part_that_never_was_is_refused_as_the_real_one(memory: Memory) -> None:
    for dry_run in (True, False):
        with pytest.raises(NotFound, match="engrain sessions"):
            memory.erase(session="moonday", dry_run=dry_run)


@pytest.mark.parametrize("stage", ["_delete_rows", "_clean_side_stores", "_verify_and_finish"])
def test_asking_again_goes_on_with_the_erasure_under_way(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(run, stage, cut_off)
        first = memory.store.erase(user="ana")
        assert (first.pending, memory.store.erase(user="ana").id) == (True, first.id)
    done = memory.store.erase(user="ana")
    assert done.receipt, done.why
    assert done.id == first.id
    assert [one.what for one in memory.store.audit()] == ["erase"]


@pytest.mark.parametrize("stage", ["_clean_side_stores", "_verify_and_finish"])
def test_asking_again_goes_on_in_postgres_too(url: str, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    with opened(url, background=False) as memory:
        memory.remember("Ana lives in Lima.")
        with monkeypatch.context() as patched:
            patched.setattr(run, stage, cut_off)
            first = memory.store.erase(user="ana")
        done = memory.store.erase(user="ana")
        assert done.receipt, done.why
        assert done.id == first.id


def test_asking_again_for_a_part_goes_on_with_it_too(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.add_message("user", "Hello.", session="monday")
    with monkeypatch.context() as patched:
        patched.setattr(run, "_verify_and_finish", cut_off)
        first = memory.erase(session="monday")
    assert first.pending
    done = memory.erase(session="monday")
    assert done.receipt, done.why
    assert done.id == first.id


def test_under_a_hold_that_came_since_asking_again_is_refused(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(run, "_delete_rows", cut_off)
        assert memory.store.erase(user="ana").pending
    memory.store.hold("ana", reason="case-7")
    with pytest.raises(OnHold):
        memory.store.erase(user="ana")


def test_what_came_since_is_another_erasure(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(run, "_verify_and_finish", cut_off)
        first = memory.store.erase(user="ana")
        memory.remember("Ana is back.")
    again = memory.store.erase(user="ana")
    assert again.receipt, again.why
    assert again.id != first.id
    assert memory.list() == []
    assert [one.id for one in memory.store.resume_erasures()] == [first.id]


def test_asking_again_with_a_folder_cleans_the_folder_too(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    memory.mirror(folder).sync()
    with monkeypatch.context() as patched:
        patched.setattr(run, "_clean_side_stores", cut_off)
        first = memory.store.erase(user="ana")
        told = memory.store.erase(user="ana", folders=[folder])
    done = memory.store.erase(user="ana", folders=[folder])
    assert done.receipt, done.why
    assert done.id == told.id
    assert done.receipt.values["counts"]["files"] > 0
    assert list(folder.rglob("*.md")) == []
    assert [one.id for one in memory.store.resume_erasures() if one.receipt] == [first.id]


def test_a_folder_that_is_named_while_another_ends_the_erasure_is_cleaned(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    memory.mirror(folder).sync()
    with monkeypatch.context() as patched:
        patched.setattr(run, "_clean_side_stores", cut_off)
        memory.store.erase(user="ana")
    running = erasure_requests._list_running

    def overtaken(*args: Any) -> list[Erasure]:
        found = running(*args)
        monkeypatch.setattr(erasure_requests, "_list_running", running)
        with monkeypatch.context() as patched:
            patched.setattr(run, "_verify_and_finish", cut_off)
            memory.store.resume_erasures()
        return found

    monkeypatch.setattr(erasure_requests, "_list_running", overtaken)
    assert memory.store.erase(user="ana", folders=[folder]).receipt
    assert list(folder.rglob("*.md")) == []


def test_a_second_look_tells_a_changed_receipt_from_one_of_another_store(
    memory: Memory, store: Path, tmp_path: Path
) -> None:
    receipt = memory.store.erase(user="ana").receipt
    assert receipt is not None
    changed = str(receipt).replace('"item": 1', '"item": 2')
    assert changed != str(receipt)
    found = [memory.store.verify_erasure(one) for one in (receipt, changed)]
    assert [(one.recorded, one.known) for one in found] == [(True, True), (False, True)]
    with opened(tmp_path / "other.db", background=False) as other:
        other.remember("Ana lives in Lima.")
        other.store.erase(user="ana")
        seen = other.store.verify_erasure(receipt)
    assert (seen.recorded, seen.known) == (False, False)
