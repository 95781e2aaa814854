"""Nothing crosses from one scope to another, whatever is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from examples import REFERENCE

from engrain import Memory, NotFound, Scope, SessionPosition

CANARY = "heliotrope-7741"
HOSTILE = [
    "ANA",
    "ana ",
    "a%",
    "_na",
    "ana' or '1'='1",
    "ana\u0000".strip("\u0000") + "\u200b",
    "*",
    "null",
    "None",
]


@pytest.fixture(params=["sqlite", REFERENCE])
def pair(request: pytest.FixtureRequest, open_memory: Callable[..., Memory], store: str) -> tuple[Memory, Memory]:
    if request.param == "sqlite":
        return open_memory(user="ana"), open_memory(user="eve")
    ana = open_memory(store="reference://", user="ana")
    return ana, on_the_same_store(ana, Scope(user="eve"))


def on_the_same_store(memory: Memory, scope: Scope) -> Memory:
    return memory.store.memory(user=scope.user)


def fill(memory: Memory) -> dict[str, str]:
    ids = {
        "fact": memory.remember(f"The vault code is {CANARY}.", metadata={"code": CANARY}, source=CANARY),
        "slot": memory.remember(f"{CANARY} Street", slot="user.street"),
        "turn": memory.remember(f"I said {CANARY}.", position=SessionPosition("monday", speaker=CANARY, role="user")),
        "relation": memory.relations.add("Ana", "owns", CANARY),
    }
    memory.remember(f"{CANARY} Avenue", slot="user.street")
    return ids


def test_no_verb_shows_another_scopes_text(pair: tuple[Memory, Memory]) -> None:
    ana, eve = pair
    ids = fill(ana)
    eve.remember("The vault is in the cellar.", slot="user.street")
    eve.remember("I said nothing.", position=SessionPosition("monday"))
    seen: list[Any] = [
        str(eve.recall(question, n=50, min_relevance=0))
        for question in (f"What is the vault code {CANARY}?", "Where is the vault?", "What did I say?", "who owns what")
    ]
    seen += [eve.recall("vault", where=where, min_relevance=0).hits for where in hostile_filters()]
    seen += [eve.list(where, history=True) for where in hostile_filters()]
    seen += [eve.get(one) for one in ids.values()]
    seen += [eve.slots.get("user.street"), eve.slots.list(""), eve.relations.about(CANARY), eve.relations.about("Ana")]
    assert CANARY not in repr(seen)
    assert [ana.store.status(one.scope).items for one in (eve, ana)] == [2, 4]


def hostile_filters() -> list[dict[str, Any]]:
    return [
        {"metadata.code": CANARY},
        {"metadata.code') or 1=1 --": {"exists": False}},
        {'metadata."code"': {"!=": 1}},
        {"source": {"!=": "x"}},
        {"text": {"contains": ""}},
        {"kind": {"in": ["fact", "message", "' or ''='"]}},
        {"session": "monday"},
        {"slot": {"starts with": "user."}},
    ]


def test_no_verb_changes_another_scopes_items(pair: tuple[Memory, Memory]) -> None:
    ana, eve = pair
    ids = fill(ana)
    before = ana.list(history=True)
    for one in ids.values():
        for change in (
            lambda one=one: eve.forget(one),
            lambda one=one: eve.correct(one, "taken over"),
            lambda one=one: eve.update(one, pinned=True),
            lambda one=one: eve.update(one, importance=0.0),
            lambda one=one: eve.explain(one),
        ):
            with pytest.raises(NotFound):
                change()
    for where in hostile_filters():
        eve.forget(where)
    eve.remember(f"{CANARY} Street", slot="user.street")
    eve.remember(f"The vault code is {CANARY}.")
    assert ana.list(history=True) == before


def test_other_scopes_change_no_ranking(pair: tuple[Memory, Memory]) -> None:
    ana, eve = pair
    texts = [
        f"The {thing} is in the {place}." for thing in ("key", "map", "lamp") for place in ("attic", "cellar", "shed")
    ]
    ana.remember_many(texts)
    queries = ["Where is the key?", "cellar", "the lamp in the shed", "Who has the map?"]
    before = [[(hit.item.id, hit.score) for hit in ana.recall(q, n=9, min_relevance=0).hits] for q in queries]
    eve.remember_many([f"key key cellar {n}" for n in range(200)] + texts)
    after = [[(hit.item.id, hit.score) for hit in ana.recall(q, n=9, min_relevance=0).hits] for q in queries]
    assert after == before


def test_a_missing_part_is_a_value_of_its_own(open_memory: Callable[..., Memory]) -> None:
    open_memory(user="ana").remember(f"secret {CANARY}")
    for scope in [{"user": user} for user in HOSTILE] + [
        {"user": None},
        {"user": None, "agent": "ana"},
        {"user": "ana", "agent": " "},
        {"user": "ana", "tenant": "t"},
    ]:
        other = open_memory(**scope)
        assert not other.list(history=True), scope
        assert CANARY not in str(other.recall(f"secret {CANARY}", min_relevance=0)), scope


def test_sharing_is_explicit_and_read_only(open_memory: Callable[..., Memory]) -> None:
    team = open_memory(user=None, agent="team")
    team.remember("The release train leaves on Tuesdays.")
    ana = open_memory(user="ana", reads=[Scope(agent="team")])
    ana.remember("Ana's own release notes are in the wiki.")
    found = ana.recall("When does the release train leave?", min_relevance=0)
    assert found.hits[0].item.text == "The release train leaves on Tuesdays."
    assert [hit.scope for hit in found.hits] == [Scope(agent="team"), None]
    assert "shared by agent=team" in str(found.hits[0])
    assert len(ana.list()) == 1
    shared = found.hits[0].item.id
    assert ana.get(shared).text == ana.explain(shared).item.text == "The release train leaves on Tuesdays."
    for change in (
        lambda: ana.forget(shared),
        lambda: ana.correct(shared, "Never."),
        lambda: ana.update(shared, pinned=True),
    ):
        with pytest.raises(NotFound):
            change()
    assert team.list()[0].access_count == 0, "reading leaves no mark in the other scope"


def test_a_filter_tells_true_from_one(pair: tuple[Memory, Memory]) -> None:
    ana, _ = pair
    flagged = ana.remember("The vault is open.", metadata={"flag": True})
    counted = ana.remember("The vault is shut.", metadata={"flag": 1})
    for value, wanted in ((True, flagged), (1, counted), (True, flagged), (1.0, counted)):
        found = ana.recall("vault", where={"metadata.flag": value}, min_relevance=0)
        assert [hit.item.id for hit in found.hits] == [wanted], value
