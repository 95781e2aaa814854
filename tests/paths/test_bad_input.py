"""Bad input gets a typed error that says what to do, and loses nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import for_each

import engrain
from engrain import (
    BadText,
    ConfigError,
    EmptyText,
    InvalidInput,
    Memory,
    Note,
    Scope,
    SessionPosition,
    Source,
    TooLarge,
    UnknownKey,
)
from engrain.core.model.filters import Condition, Filter
from engrain.tiers.working import WorkingMemory

DAY = 86_400.0
NAN, INF = math.nan, math.inf

REFUSED: dict[str, tuple[type[Exception], Callable[[Memory], Any]]] = {
    "empty text": (EmptyText, lambda m: m.remember("")),
    "white space": (EmptyText, lambda m: m.remember(" \n\t ")),
    "10 MB": (TooLarge, lambda m: m.remember("x" * 10_000_000)),
    "bytes": (InvalidInput, lambda m: m.remember(b"\xff\xfe")),
    "none": (InvalidInput, lambda m: m.remember(None)),
    "lone surrogate": (BadText, lambda m: m.remember("broken \ud800 text")),
    "NUL": (BadText, lambda m: m.remember("a\x00b")),
    "NaN importance": (InvalidInput, lambda m: m.remember("x", importance=NAN)),
    "infinite importance": (InvalidInput, lambda m: m.remember("x", importance=INF)),
    "importance above 1": (InvalidInput, lambda m: m.remember("x", importance=1.1)),
    "importance as text": (InvalidInput, lambda m: m.remember("x", importance="high")),
    "true as importance": (InvalidInput, lambda m: m.remember("x", importance=True)),
    "slot with a space": (InvalidInput, lambda m: m.remember("x", slot="bad slot!")),
    "asking for a slot with a space": (InvalidInput, lambda m: m.slots.get("User City")),
    "empty slot": (EmptyText, lambda m: m.remember("x", slot=" ")),
    "long slot": (TooLarge, lambda m: m.remember("x", slot="s" * 513)),
    "surrogate slot": (BadText, lambda m: m.remember("x", slot="\udfff")),
    "NaN in metadata": (InvalidInput, lambda m: m.remember("x", metadata={"a": NAN})),
    "object in metadata": (InvalidInput, lambda m: m.remember("x", metadata={"a": object()})),
    "key that is no text": (InvalidInput, lambda m: m.remember("x", metadata={1: "a"})),
    "huge number in metadata": (InvalidInput, lambda m: m.remember("x", metadata={"a": 2**63})),
    "large metadata": (TooLarge, lambda m: m.remember("x", metadata={"a": "b" * 70_000})),
    "deep metadata": (TooLarge, lambda m: m.remember("x", metadata={"a": nested(40)})),
    "list as metadata": (InvalidInput, lambda m: m.remember("x", metadata=[1])),
    "no such source kind": (InvalidInput, lambda m: m.remember("x", source=Source("a", "oracle"))),
    "no time": (InvalidInput, lambda m: m.remember("x", occurred_at="yesterday")),
    "number as time": (InvalidInput, lambda m: m.remember("x", occurred_at=12)),
    "negative place": (InvalidInput, lambda m: m.remember("x", position=SessionPosition("s", -1))),
    "cites nothing": (engrain.NotFound, lambda m: m.remember("x", source=cite("0" * 26))),
    "span the wrong way": (InvalidInput, lambda m: m.remember("x", source=cite("0" * 26, 5, 2))),
    "unknown note key": (UnknownKey, lambda m: m.remember_many([{"text": "x", "wieght": 1}])),
    "note without text": (InvalidInput, lambda m: m.remember_many([{"importance": 1}])),
    "cites that are no list": (InvalidInput, lambda m: m.remember_many([{"text": "x", "source": {"cites": 7}}])),
    "cite without item": (
        InvalidInput,
        lambda m: m.remember_many([{"text": "x", "source": {"cites": [{"start": 1}]}}]),
    ),
    "cite that is none": (InvalidInput, lambda m: m.remember("x", source=Source(None, "agent", ("abc",)))),
    "a text as many notes": (InvalidInput, lambda m: m.remember_many("hey")),
    "bad request id": (BadText, lambda m: m.correct(m.list()[0].id, "y", request_id="\ud800")),
    "long request id": (TooLarge, lambda m: m.correct(m.list()[0].id, "y", request_id="x" * 1000)),
    "bad page": (BadText, lambda m: m.list(after="\ud800")),
    "a word as a flag": (InvalidInput, lambda m: m.update(m.list()[0].id, pinned="yes")),
    "hostile operator": (UnknownKey, lambda m: m.list(Filter((Condition("importance", ">= 5, 0)) or (1 >", 0),)))),
    "number as note": (InvalidInput, lambda m: m.remember_many([3])),
    "empty request id": (EmptyText, lambda m: m.remember("x", request_id="")),
    "empty query": (EmptyText, lambda m: m.recall("")),
    "long query": (TooLarge, lambda m: m.recall("x" * 200_000)),
    "surrogate query": (BadText, lambda m: m.recall("\ud800")),
    "n of zero": (InvalidInput, lambda m: m.recall("x", n=0)),
    "negative n": (InvalidInput, lambda m: m.recall("x", n=-3)),
    "n too large": (InvalidInput, lambda m: m.recall("x", n=10**9)),
    "negative budget": (InvalidInput, lambda m: m.recall("x", budget=-1)),
    "NaN relevance": (InvalidInput, lambda m: m.recall("x", min_relevance=NAN)),
    "bad as_of": (InvalidInput, lambda m: m.recall("x", as_of="soon")),
    "unknown filter key": (UnknownKey, lambda m: m.list({"colour": "red"})),
    "unknown operator": (UnknownKey, lambda m: m.list({"importance": {"~": 1}})),
    "hostile filter key": (UnknownKey, lambda m: m.recall("x", where={"id = '' or 1=1 --": 1})),
    "NaN in a filter": (InvalidInput, lambda m: m.list({"importance": {">": NAN}})),
    "text for a number": (InvalidInput, lambda m: m.list({"importance": "high"})),
    "no list for in": (InvalidInput, lambda m: m.list({"kind": {"in": "fact"}})),
    "too many conditions": (TooLarge, lambda m: m.list({f"metadata.k{n}": n for n in range(40)})),
    "negative limit": (InvalidInput, lambda m: m.list(limit=-1)),
    "forget with an empty filter": (InvalidInput, lambda m: m.forget({})),
    "forget with nothing": (InvalidInput, lambda m: m.forget(None)),
    "forget an unknown id": (engrain.NotFound, lambda m: m.forget("no such id")),
    "forget an empty id": (EmptyText, lambda m: m.forget("")),
    "correct with nothing": (EmptyText, lambda m: m.correct(m.list()[0].id, " ")),
    "why of an unknown id": (engrain.NotFound, lambda m: m.explain("'; drop table item; --")),
    "a list for the name of a result": (InvalidInput, lambda m: m.working.get_result([])),
    "a list for the name of a variable": (InvalidInput, lambda m: m.working.get_variable([])),
    "empty entity": (EmptyText, lambda m: m.relations.about("")),
    "empty relation": (EmptyText, lambda m: m.relations.add("Ana", "", "Acme")),
}


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else 1


def cite(item: str, start: int | None = None, end: int | None = None) -> Source:
    return Source(None, "agent", (engrain.Citation(item, start, end),))


@for_each("case", REFUSED)
def test_bad_input_is_a_typed_error_and_loses_nothing(case: str, memory: Memory) -> None:
    kept = memory.remember("Ana prefers Python.")
    error, call = REFUSED[case]
    with pytest.raises(error) as caught:
        call(memory)
    assert isinstance(caught.value, engrain.EngrainError)
    assert len(str(caught.value)) > 15, "the message says what is wrong"
    assert [item.id for item in memory.list()] == [kept]
    assert memory.recall("What does Ana prefer?").hits


@pytest.mark.parametrize("part", ["user", "agent", "tenant"])
def test_a_scope_with_bad_text_is_refused(part: str, tmp_path: Path) -> None:
    for value, error in (
        ("", EmptyText),
        ("a\x00", BadText),
        ("\ud800", BadText),
        ("x" * 600, TooLarge),
        (7, InvalidInput),
    ):
        with pytest.raises(error):
            Memory(tmp_path / "a.db", **{part: value})


def test_a_store_that_is_no_path_is_refused(tmp_path: Path) -> None:
    for where in ("", "a\x00b", "nosuch://server", "qdrant://localhost", tmp_path / "none.toml"):
        with pytest.raises(ConfigError):
            Memory(where)
    with pytest.raises(ConfigError, match="unknown embedder"):
        Memory(tmp_path / "a.db", embedder="magic")


def test_settings_name_the_key_that_is_wrong(tmp_path: Path) -> None:
    for text, error in (
        ("[stores]\ndefualt = 'a.db'", UnknownKey),
        ("[store]\ndefault = 'a.db'", UnknownKey),
        ("[stores]\ncache_bytes = 'much'", ConfigError),
        ("[stores\n", ConfigError),
    ):
        path = tmp_path / "engrain.toml"
        path.write_text(text)
        with pytest.raises(error):
            Memory(path)
    path.write_text(f"[stores]\ndefault = '{tmp_path / 'b.db'}'\n")
    with Memory(path, user="ana") as memory:
        memory.remember("kept")
    assert (tmp_path / "b.db").exists()


def test_a_clock_that_jumps_loses_nothing(memory: Memory, clock: SetClock) -> None:
    memory.remember("first", slot="s.v")
    clock.advance(2 * DAY)
    memory.remember("second", slot="s.v")
    clock.advance(-3 * DAY)
    memory.remember("third", slot="s.v")
    stray = memory.remember("a fact under a clock that runs behind")
    assert memory.slots.get("s.v").text == "third"
    times = [item.recorded_at for item in sorted(memory.list(history=True), key=lambda item: item.id)]
    assert times == sorted(times)
    assert stray in [hit.item.id for hit in memory.recall("a clock that runs behind").hits]


class Broken:
    """Counts as it should until it is asked for the real thing."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.well = answer, True

    def __call__(self, text: str) -> Any:
        if self.well:
            return len(text)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", ["12", -1, None, 1.5, ZeroDivisionError("no")])
def test_a_counter_that_cannot_count_is_named_and_loses_nothing(tmp_path: Path, answer: Any) -> None:
    broken = Broken(answer)
    broken.well = False
    for wrong in (broken, 7):
        with pytest.raises(InvalidInput, match="count_tokens"):
            Memory(tmp_path / "agent.db", settings={"tokens": {"count": wrong}})  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="count_tokens"):
            WorkingMemory(count_tokens=wrong)  # type: ignore[arg-type]
    broken.well = True
    with Memory(tmp_path / "agent.db", settings={"tokens": {"count": broken}}) as memory:
        broken.well = False
        memory.add_message("user", "Ana keeps bees.")
        with pytest.raises(InvalidInput, match="count_tokens"):
            memory.recall("Who keeps bees?", budget=100)
        broken.well = True
        assert memory.recall("Who keeps bees?", budget=100).hits


def test_a_closed_memory_says_so(memory: Memory) -> None:
    memory.close()
    memory.close()
    with pytest.raises(engrain.StoreClosed):
        memory.remember("too late")


def test_a_note_of_the_largest_size_is_kept(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=HashEmbedder())
    text = "word " * 199_999 + "end."
    item = memory.remember_many([Note(text)])[0].id
    assert memory.get(item).text == text


def test_reads_are_scopes(tmp_path: Path) -> None:
    for reads in (["ana"], Scope(user="ana"), "ana", None):
        with pytest.raises(InvalidInput, match="reads"):
            Memory(tmp_path / "a.db", user="eve", reads=reads)  # type: ignore[arg-type]
