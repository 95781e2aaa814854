"""A change of the embedding model: searchable all the while, never two models in one comparison, resumable."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from engrain_conformance.embedder import HashEmbedder
from reembed_program import Marked, Watched, opened

from engrain import EmbedderFailed, Memory
from engrain.core.model.queries import EmbedKind

PROGRAM = Path(__file__).with_name("reembed_program.py")
OLD, NEW = Marked("old").model.key, Marked("new").model.key


def filled(path: Path, count: int) -> str:
    with Memory(path, user="ana", embedder=Marked("old"), background=False) as memory:
        memory.remember_many([{"text": f"Note {n} is about the lighthouse {n % 100}."} for n in range(count)])
    return str(path)


def watched(memory: Memory) -> Watched:
    services = memory.store.services
    seen = Watched(services.vectors, services.items)
    memory.store.workers.services = replace(services, vectors=seen)
    return seen


def models(memory: Memory) -> dict[str, int]:
    return dict(memory.store.services.items.models())  # type: ignore[attr-defined]


def started(store: str, what: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(PROGRAM), store, what], stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def test_the_model_before_answers_until_every_vector_is_made(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 40)
    with opened(store) as memory:
        seen = watched(memory)
        assert "lighthouse 7" in str(memory.recall("What about the lighthouse 7?"))
        memory.remember("A note of today is about the harbour.")
        assert "harbour" in str(memory.recall("What about the harbour?"))
        assert set(seen.models) == {"old"}
        done = memory.store.maintain(memory.scope, reembed=True)
        assert (done.counts["embedded"], done.counts["dropped"]) == (41, 1)
        seen.models.clear()
        assert "harbour" in str(memory.recall("What about the harbour?"))
        assert set(seen.models) == {"new"}
        assert models(memory) == {NEW: 41}, "and the old vectors are gone"


def test_a_memory_that_stays_open_changes_over_by_itself(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 40)
    with opened(store, background=True) as memory:
        ends = time.monotonic() + 180
        while memory.store.status(memory.scope).embedder["name"] != "new" and time.monotonic() < ends:
            assert memory.recall("What about the lighthouse 7?").hits
        assert memory.store.status(memory.scope).embedder["name"] == "new"
        assert models(memory) == {OLD: 40, NEW: 40}, "what another program may still use stays until somebody asks"


def test_without_the_model_before_words_find_everything_meanwhile(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 40)
    with Memory(store, user="ana", embedder=Marked("new"), background=False) as memory:
        seen = watched(memory)
        assert "lighthouse 7" in str(memory.recall("What about the lighthouse 7?"))
        assert set(seen.models) == {"new"}


def test_a_command_that_does_not_know_the_embedder_embeds_nothing_and_drops_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 40)
    with Memory(store, user="ana", embedder=HashEmbedder("other"), background=False) as memory:
        done = memory.store.maintain(memory.scope)
        assert (done.counts["embedded"], done.counts["dropped"]) == (0, 0)
        assert models(memory) == {OLD: 40}


def test_what_has_no_vector_gets_one_without_being_asked(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 40)
    with Memory(store, user="ana", embedder=Marked("old"), background=False) as memory:
        memory.store.services.items.drop_model(OLD, 3)  # type: ignore[attr-defined]
        assert memory.store.maintain(memory.scope, dry_run=True).counts["embedded"] == 3
        assert memory.store.maintain(memory.scope).counts["embedded"] == 3
        assert models(memory) == {OLD: 40}


class Odd(HashEmbedder):
    """Does something else with one text."""

    def __init__(self, odd: Callable[[Any], Any], words: str = "Note 7 ") -> None:
        super().__init__("odd")
        self.odd, self.words = odd, words

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Any:
        rows = super().embed(texts, kind)
        return self.odd(rows) if any(self.words in text for text in texts) else rows


def refusing(rows: Any) -> NoReturn:
    raise EmbedderFailed("this text is refused")


ODD = {
    "refused": refusing,
    "not a number": lambda rows: rows * float("nan"),
    "too few": lambda rows: rows[1:],
    "too short": lambda rows: rows[:, :3],
    "an error of another kind": lambda rows: 1 // 0,
    "no matrix": lambda rows: None,
}


@pytest.mark.parametrize("what", ODD)
def test_a_text_that_the_model_does_not_take_stops_no_other(tmp_path: Path, what: str) -> None:
    store = filled(tmp_path / "agent.db", 200)
    options = {"embedder": Odd(ODD[what]), "settings": {"embedder": {"before": Marked("old")}}, "background": False}
    with Memory(store, user="ana", **options) as memory:  # type: ignore[arg-type]
        done = memory.store.maintain(memory.scope, reembed=True)
        assert (done.counts["embedded"], done.counts["dropped"]) == (199, 0)
        assert models(memory) == {OLD: 200, Odd(refusing).model.key: 199}, "until all have one, the old ones stay"
        (problem,) = done.problems
        assert "1 text not taken by the embedder" in problem
        assert "lighthouse 7" in str(memory.recall("What about the lighthouse 7?"))
        kept = memory.remember("Note 7 is told anew.")
        assert memory.get(kept) is not None, "a text is kept whatever the embedder does"


def test_in_the_background_too(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 200)
    with Memory(store, user="ana", embedder=Odd(refusing), settings={"embedder": {"before": Marked("old")}}) as memory:
        ends = time.monotonic() + 180
        while memory.store.status(memory.scope).background["running"] and time.monotonic() < ends:
            time.sleep(0.05)
        assert models(memory)[Odd(refusing).model.key] == 199
        assert "1 text not taken" in memory.store.status(memory.scope).background["error"]


def test_a_model_that_answers_nothing_is_not_asked_text_by_text(tmp_path: Path) -> None:
    store = filled(tmp_path / "agent.db", 200)
    down = Odd(refusing, "")
    with Memory(
        store, user="ana", embedder=down, settings={"embedder": {"before": Marked("old")}}, background=False
    ) as memory:
        done = memory.store.maintain(memory.scope, reembed=True)
        assert (done.counts["embedded"], done.counts["dropped"], done.problems) == (
            0, 0, ("embedded: this text is refused",),
        )  # fmt: skip


def test_a_change_of_the_model_is_killed_and_goes_on(tmp_path: Path) -> None:
    change(tmp_path, 200)


@pytest.mark.slow
def test_a_change_of_the_model_of_20_000_items(tmp_path: Path) -> None:
    change(tmp_path, 20_000)


def change(folder: Path, count: int) -> None:
    """With questions in a thread and in another process, which never stop being answered."""
    store = filled(folder / "agent.db", count)
    asking = started(store, "ask")
    assert lines(asking, 1) == ["1"]
    stop, problem, answered = threading.Event(), list[BaseException](), list[int]()
    with opened(store) as memory:
        seen = watched(memory)

        def ask() -> None:
            number = 0
            while not stop.is_set() and not problem:
                number += 1
                try:
                    answered.append(len(memory.recall(f"What about the lighthouse {number % 100}?").hits))
                except BaseException as exc:  # noqa: BLE001  (told to the test)
                    problem.append(exc)
                time.sleep(0.02)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for _ in range(2):
                made = killed(store)
                assert 0 < made < count
            embedded = memory.store.maintain(memory.scope, reembed=True, dry_run=True).counts["embedded"]
            assert 0 < embedded < count, "what was made before the kill is kept"
            assert memory.store.maintain(memory.scope, reembed=True).counts["embedded"] == embedded
            after = len(answered) + 5
            while len(answered) < after and not problem:
                time.sleep(0.01)
        finally:
            stop.set()
            thread.join()
        assert problem == []
        assert all(answered)
        assert list(dict.fromkeys(seen.models)) == ["old", "new"], "first by the one, then by the other"
        assert seen.models == sorted(seen.models, reverse=True)
        assert models(memory) == {NEW: count}
    lines(asking, 3)
    assert asking.poll() is None, "the other process still answers"
    asking.kill()
    asking.wait()


def killed(store: str) -> int:
    """How many vectors a process had said that it made when it was killed."""
    working = started(store, "reembed")
    made = sum(int(line) for line in lines(working, 2))
    working.kill()
    working.wait()
    return made
