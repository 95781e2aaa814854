"""Drive a backend and the reference store with the same random plans, and compare all that they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engrain.conformance.clock import START, SetClock
from engrain.conformance.drafts import ANA, BEN, EMBEDDER, MODEL, fact
from engrain.conformance.views import ENTITIES, SESSIONS, SLOTS, TARGET, View, shown
from engrain.core.errors import EngrainError
from engrain.core.items import Cite, Draft, Item, Place, Relation, Source
from engrain.core.plans import Add, Applied, Change, Correct, Embed, Forget, Outcome, Plan, Step
from engrain.core.scope import Scope
from engrain.ports import ListQuery, Summary
from engrain.stores.reference import ReferenceStore

MakeStore = Callable[[SetClock], Any]

TEXTS = ("Lima", "Quito", "Ana lives in Lima.", "I always drink tea, never coffee. " * 30, "茶が好きです。", "x")
SCOPES = st.sampled_from([ANA, ANA, ANA, BEN])
PICKS = st.tuples(st.integers(0, 30), st.integers(0, 9))  # which item, and whether of any scope

PLACES = st.tuples(st.sampled_from(SESSIONS), st.none() | st.integers(0, 4), st.sampled_from(["Ana", "Zoe", None]))
DRAFTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "kind": st.sampled_from(["fact", "fact", "relation", "message"]),
        "importance": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "slot": st.sampled_from([None, None, *SLOTS]),
        "metadata": st.sampled_from([{}, {"k": 1}, {"k": "x", "l": [1, None]}]),
        "source": st.sampled_from([Source(), Source("page", "web"), Source("told", "agent")]),
        "place": st.none() | PLACES,
        "occurred": st.sampled_from([None, None, None, -3_600, -60, 0, 3_600]),
        "expires": st.sampled_from([None, None, None, 30, 7_200]),
        "derived": st.booleans(),
        "embedded": st.booleans(),
        "cites": st.lists(st.tuples(PICKS, st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9))), max_size=2),
    }
)
STEPS = st.one_of(
    st.tuples(st.just("add"), DRAFTS),
    st.tuples(st.just("add"), DRAFTS),
    st.tuples(st.just("correct"), PICKS, DRAFTS),
    st.tuples(st.just("change"), PICKS, st.sampled_from([0.1, 0.9, None]), st.sampled_from([True, False, None])),
    st.tuples(st.just("forget"), PICKS, st.booleans()),
)


class StoreMachine(RuleBasedStateMachine):
    """Side 0 is the reference store, side 1 the backend."""

    make: ClassVar[MakeStore]

    @initialize()
    def open(self) -> None:
        self.clock = SetClock()
        self.stores = (ReferenceStore(clock=self.clock), type(self).make(self.clock))
        self.known: list[tuple[Scope, str, str]] = []  # scope, id in the one, id in the other
        self.labels: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self.seen = [0, 0]
        self.mirrors: tuple[dict[str, Item], dict[str, Item]] = ({}, {})

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            store.close()

    # What happens

    @rule(
        scope=SCOPES,
        specs=st.lists(STEPS, min_size=1, max_size=3),
        request=st.sampled_from([None, None, None, "r", "s"]),
    )
    def apply(self, scope: Scope, specs: list[Any], request: str | None) -> None:
        cites = [self._cites(scope, spec[-1]["cites"]) if isinstance(spec[-1], dict) else () for spec in specs]
        plans = [
            Plan(
                scope,
                tuple(self._step(scope, spec, each, side) for spec, each in zip(specs, cites, strict=True)),
                request,
            )
            for side in (0, 1)
        ]
        self._both(scope, lambda store, side: store.apply(plans[side]))

    @rule(
        scope=SCOPES, session=st.sampled_from(SESSIONS), count=st.integers(1, 3), expect=st.none() | st.integers(0, 4)
    )
    def append(self, scope: Scope, session: str, count: int, expect: int | None) -> None:
        drafts = [fact(TEXTS[n], kind="message", place=Place(session, None, "Zoe", "user")) for n in range(count)]
        self._both(scope, lambda store, _: store.append(scope, session, drafts, expect))

    @rule(scope=SCOPES, session=st.sampled_from(SESSIONS), upto=st.integers(0, 3), version=st.integers(1, 2))
    def summarize(self, scope: Scope, session: str, upto: int, version: int) -> None:
        self._both(scope, lambda store, _: store.summarize(scope, session, Summary("In sum.", upto, version)))

    @rule(seconds=st.sampled_from([0.000_001, 1, 60, 3_600, -1, -3_600]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(scope=SCOPES, picks=st.lists(PICKS, max_size=3))
    def touch(self, scope: Scope, picks: list[Any]) -> None:
        pairs = [self._pick(scope, pick) for pick in picks]
        self._both(scope, lambda store, side: store.touch(scope, [pair[side] for pair in pairs]))

    @rule(limit=st.integers(1, 3))
    def embed(self, limit: int) -> None:
        for side, store in enumerate(self.stores):
            for one in store.unembedded(MODEL, limit):
                applied = store.apply(Plan(one.scope, (Embed(one.id, one.hash, EMBEDDER.vectors(one.text)),)))
                assert applied.outcomes == (Outcome(one.id, "changed"),), side

    @rule(count=st.integers(1, 4))
    def drain(self, count: int) -> None:
        for side, store in enumerate(self.stores):
            entries = store.outbox(TARGET, count)
            for one in entries:
                scope = next((scope for scope in (ANA, BEN) if scope.id == one.scope_id), None)
                assert scope
                assert one.gone is not bool(store.get_many(scope, [one.item])), side
            if entries:
                store.settle(TARGET, entries[-1].seq)

    @rule()
    def rebuild(self) -> None:
        assert self.stores[0].rebuild() == self.stores[1].rebuild()

    # What must hold after each step

    @invariant()
    def shows_the_same(self) -> None:
        at = START + timedelta(seconds=61)
        for scope in (ANA, BEN):
            oracle, real = (View(store, scope, at, self._label(side)) for side, store in enumerate(self.stores))
            wanted, found = oracle.everything(), real.everything()
            for name, value in wanted.items():
                assert found[name] == value, f"{name} of {scope}"
        states = [store.status() for store in self.stores]
        counted = [(one.items, one.open_items, one.scopes, one.unembedded) for one in states]
        assert counted[0] == counted[1]

    @invariant()
    def tells_every_change(self) -> None:
        """A reader that only follows `changes` knows every item as it stands, uses aside."""
        for side, store in enumerate(self.stores):
            mirror = self.mirrors[side]
            complete = False
            while not complete:
                changes = store.changes(ANA, self.seen[side], 2)
                self.seen[side], complete = changes.seq, changes.complete
                for one in changes.changes:
                    mirror.pop(one.id, None)
                    mirror |= {item.id: _unused(item) for item in store.get_many(ANA, [one.id])}
            items = store.page(ListQuery(ANA, history=True, limit=10_000))
            assert mirror == {item.id: _unused(item) for item in items}, side

    # How the two are kept in step

    def _both(self, scope: Scope, call: Callable[[Any, int], Any]) -> None:
        wanted, found = (_attempt(partial(call, store, side)) for side, store in enumerate(self.stores))
        if not isinstance(wanted, Applied) or not isinstance(found, Applied):
            assert found == wanted
            return
        for one, other in zip(wanted.outcomes, found.outcomes, strict=True):
            if one.id and other.id and one.id not in self.labels[0]:
                self._learn(scope, one.id, other.id)
        assert found.repeated == wanted.repeated
        assert self._outcomes(found, 1) == self._outcomes(wanted, 0)

    def _learn(self, scope: Scope, one: str, other: str) -> None:
        name = f"item {len(self.known)}"
        self.labels[0].setdefault(one, name)
        self.labels[1].setdefault(other, name)
        self.known.append((scope, one, other))

    def _outcomes(self, applied: Applied, side: int) -> list[Any]:
        name = self._label(side)
        return [
            (name(one.id), one.status, {name(id) for id in one.others}, {name(id) for id in one.marked}, one.place)
            for one in applied.outcomes
        ]

    def _label(self, side: int) -> Callable[[str | None], str | None]:
        return lambda id: None if id is None else self.labels[side].get(id, f"unknown {id == 'nothing'}")

    def _pick(self, scope: Scope, pick: tuple[int, int]) -> tuple[str, str]:
        near = [one for one in self.known if one[0] == scope or pick[1] == 0]
        if not near or pick == (30, 9):
            return "nothing", "nothing"
        _, *pair = near[-1 - pick[0] % len(near)]
        return pair[0], pair[1]

    def _cites(self, scope: Scope, specs: list[Any]) -> list[tuple[Cite, Cite]]:
        """Of both sides. Spans are drawn over the present text, and may be bad."""
        found = []
        for pick, edges in specs:
            pair = self._pick(scope, pick)
            item = next(iter(self.stores[0].get_many(scope, [pair[0]])), None)
            long = len(item.text) if item else 5
            span = (None, None) if edges is None else (long * edges[0] // 9, long * edges[1] // 9)
            found.append((Cite(pair[0], *span), Cite(pair[1], *span)))
        return found

    def _step(self, scope: Scope, spec: Any, cites: Any, side: int) -> Step:
        if spec[0] == "add":
            return Add(self._draft(spec[1], cites, side))
        id = self._pick(scope, spec[1])[side]
        if spec[0] == "correct":
            return Correct(id, self._draft(spec[2], cites, side))
        if spec[0] == "change":
            return Change(id, spec[2], spec[3])
        return Forget(id, spec[2])

    def _draft(self, spec: dict[str, Any], cites: Any, side: int) -> Draft:
        place = Place(spec["place"][0], spec["place"][1], spec["place"][2], "user") if spec["place"] else None
        values = {name: spec[name] for name in ("kind", "importance", "slot", "metadata", "derived")}
        draft = fact(
            spec["text"],
            **values,
            place=place,
            source=replace(spec["source"], cites=tuple(pair[side] for pair in cites)),
            occurred_at=_moment(spec["occurred"]),
            expires_at=_moment(spec["expires"]),
            relation=Relation(ENTITIES[0], "likes", ENTITIES[1]) if spec["kind"] == "relation" else None,
        )
        return draft if spec["embedded"] else replace(draft, vectors=None)


def _attempt(call: Callable[[], Any]) -> Any:
    """The answer, or the kind of error."""
    try:
        return call()
    except EngrainError as exc:
        return type(exc)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def _unused(item: Item) -> Item:
    return replace(shown(item, lambda id: id), access_count=0, last_accessed=None)


def compare_with_reference(make: MakeStore, examples: int = 25, steps: int = 15, fixed: bool = True) -> None:
    """Run the machine against the stores that `make` opens, one for each example; `fixed`: the same each time."""
    bound = type("BoundMachine", (StoreMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        bound,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=fixed,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
