"""Drive a backend and the reference store with the same random plans, and compare everything they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft, Item, Relation, SessionPosition, Source
from engrain.core.model.plans import Add, Applied, Change, Correct, Embed, Forget, Outcome, Plan, Step, refer_to_step
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import ListQuery, Summary
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain.core.text.passages import index_words
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN, EMBEDDER, MODEL, append_messages, fact
from engrain_conformance.dump_restore import check_copy
from engrain_conformance.reference import ReferenceStore
from engrain_conformance.views import (
    ENTITIES,
    MOMENTS,
    NAMES,
    SESSIONS,
    SLOTS,
    TARGET,
    WORKS,
    View,
    label_episode,
    label_item,
)

MakeStore = Callable[[SetClock], Any]

ITEM_PICKS = st.tuples(st.integers(0, 7), st.integers(0, 15))  # which item; now and then one of any scope, or long gone
STEP_NUMBERS = st.integers(0, 2)  # which step of the same plan
_SECONDS = st.sampled_from([None, None, -1, 0, 60, 3_600])
EPISODE_SPECS = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["", "", *NAMES]),
        "over": STEP_NUMBERS | ITEM_PICKS | st.none(),
        "session": st.sampled_from(SESSIONS),
        "importance": st.sampled_from([0.1, 0.5, 0.9]),
        "happened": st.sampled_from([-3_600, 0, 0, 1, 60]),
        "expires": _SECONDS,
        "count": st.sampled_from([1, 1, 3]),
        "data": st.sampled_from([{}, {"k": [1, None]}]),
        "key": st.sampled_from([None, "same", "other"]),
        "raw": _SECONDS,
    }
)
TRIALS = st.tuples(ITEM_PICKS, st.sampled_from(NAMES), st.booleans(), st.integers(0, 3))
PROGRESS_MARKS = st.tuples(st.sampled_from(SESSIONS), st.sampled_from(WORKS), st.integers(0, 6))
TEXTS = ("Lima", "Quito", "Ana lives in Lima.", "I always drink tea, never coffee. " * 30, "茶が好きです。", "x")
SCOPES = st.sampled_from([ANA, ANA, ANA, BEN])
SPANS = st.none() | st.tuples(st.integers(0, 4), st.integers(4, 9))  # ninths of the text; now and then an empty one

PLACES = st.tuples(st.sampled_from(SESSIONS), st.sampled_from([None, None, None, 1, 6]), st.sampled_from(["Ana", None]))
DRAFTS = st.fixed_dictionaries(
    {
        "text": st.sampled_from(TEXTS),
        "kind": st.sampled_from(["fact", "fact", "relation", "message", "summary"]),
        "importance": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "slot": st.sampled_from([None, None, *SLOTS]),
        "metadata": st.sampled_from([{}, {"k": 1}, {"k": "x", "l": [1, None]}]),
        "source": st.sampled_from([Source(), Source("page", "web"), Source("told", "agent")]),
        "place": st.sampled_from([None, None, ()]).flatmap(lambda one: st.none() if one is None else PLACES),
        "occurred": st.sampled_from([None, None, None, -3_600, -60, 0, 3_600]),
        "expires": st.sampled_from([None, None, None, 30, 7_200]),
        "derived": st.booleans(),
        "embedded": st.booleans(),
        "cites": st.lists(st.tuples(ITEM_PICKS | STEP_NUMBERS, SPANS), max_size=2),
    }
)
PLAIN = {
    "kind": "fact", "importance": 0.5, "slot": None, "metadata": {}, "source": Source(), "place": None,
    "occurred": None, "expires": None, "derived": True, "embedded": True,
}  # fmt: skip
SIMPLE = st.builds(
    lambda text, slot, cites, derived: {**PLAIN, "text": text, "slot": slot, "cites": cites, "derived": derived},
    st.sampled_from(TEXTS[:3]),
    st.sampled_from([None, *SLOTS]),
    st.lists(st.tuples(ITEM_PICKS | STEP_NUMBERS, SPANS), max_size=1),
    st.booleans(),
)
ADDS = st.tuples(st.just("add"), SIMPLE | DRAFTS)
CORRECTIONS = st.tuples(st.just("correct"), ITEM_PICKS, SIMPLE | DRAFTS)
REMOVALS = st.tuples(st.just("forget"), ITEM_PICKS, st.sampled_from([False, False, True]))
CHANGES = st.tuples(
    st.just("change"), ITEM_PICKS, st.sampled_from([0.1, 0.9, None]), st.sampled_from([True, False, None])
)
REQUESTS = st.sampled_from([None, "r", "s"])
SEED = (
    Draft("Ana lives in Lima.", kind="message", position=SessionPosition("monday", None, "Ana", "user")),
    Draft("Lima", slot="city"),
    Draft("Ana likes tea", kind="relation", relation=Relation(ENTITIES[0], "likes", ENTITIES[1])),
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
        self.written = {ANA, BEN}
        self.texts = [draft.text for draft in SEED]  # what was said or cited
        self.seen = [0, 0]
        self.mirrors: tuple[dict[str, Item], dict[str, Item]] = ({}, {})
        for scope in (ANA, BEN):
            steps = tuple(Add(replace(draft, words=index_words(draft.text, slot=draft.slot))) for draft in SEED)
            self._both(scope, lambda store, _: store.apply(Plan(scope, steps)))  # noqa: B023
            self._apply(scope, [("add", {**PLAIN, "text": "Lives in Lima.", "cites": [((2, 9), (6, 9))]})])

    def teardown(self) -> None:
        for store in getattr(self, "stores", ()):
            if hasattr(store, "dump"):
                # Words are made anew on the other side, with the speaker in front, whom the first drafts here left out.
                store.rebuild()
                check_copy(store, ReferenceStore(clock=self.clock), START + timedelta(seconds=61))
            store.close()

    # What happens

    @rule(
        scope=SCOPES,
        specs=st.lists(ADDS, min_size=1, max_size=3),
        request=REQUESTS,
        episodes=st.lists(EPISODE_SPECS, max_size=2),
    )
    def add(self, scope: Scope, specs: list[Any], request: str | None, episodes: list[Any]) -> None:
        self._apply(scope, specs, request, episodes)

    @rule(scope=SCOPES, spec=CORRECTIONS)
    def correct(self, scope: Scope, spec: Any) -> None:
        self._apply(scope, [spec])

    @rule(scope=SCOPES, spec=REMOVALS)
    def forget(self, scope: Scope, spec: Any) -> None:
        self._apply(scope, [spec])

    @rule(scope=SCOPES, cites=st.lists(st.tuples(ITEM_PICKS, SPANS), min_size=1, max_size=3), pick=ITEM_PICKS)
    def derive_and_forget(self, scope: Scope, cites: list[Any], pick: Any) -> None:
        """A chain: each new item cites something and the one before it, and then something goes."""
        for number, cite in enumerate(cites):
            last = [((0, 9), None)] if number else []
            self._apply(scope, [("add", {**PLAIN, "text": f"Derived {number}.", "cites": [cite, *last]})])
        self._apply(scope, [("forget", pick, False)])

    @rule(scope=SCOPES, pick=ITEM_PICKS, spans=st.lists(SPANS, min_size=2, max_size=4), n=st.integers(0, 3))
    def derive_beside_and_forget(self, scope: Scope, pick: Any, spans: list[Any], n: int) -> None:
        """Several items over one text, and one of them goes."""
        plain = {**PLAIN, "derived": False}  # else only the first round adds anything
        kinds = zip(("fact", "summary", "episode", "fact"), spans, strict=False)
        beside = [{**plain, "text": f"A {kind}.", "kind": kind, "cites": [(pick, span)]} for kind, span in kinds]
        self._apply(scope, [("add", spec) for spec in beside])
        self._apply(scope, [("forget", (n, 9), False)])

    @rule(scope=SCOPES, n=st.integers(0, 20))
    def derive_again(self, scope: Scope, n: int) -> None:
        """Derive again a text that was said or cited once, and may be forgotten since."""
        text = self.texts[-1 - n % len(self.texts)]
        self._apply(scope, [("add", {**PLAIN, "text": text, "cites": []})])

    @rule(scope=SCOPES, specs=st.lists(ADDS | CORRECTIONS | REMOVALS | CHANGES, min_size=2, max_size=4))
    def apply(self, scope: Scope, specs: list[Any]) -> None:
        self._apply(scope, specs)

    @rule(
        scope=SCOPES,
        session=st.sampled_from(SESSIONS),
        count=st.integers(1, 3),
        expect=st.sampled_from([None, None, 3]),
    )
    def append(self, scope: Scope, session: str, count: int, expect: int | None) -> None:
        drafts = [
            fact(TEXTS[n], kind="message", position=SessionPosition(session, None, "Zoe", "user")) for n in range(count)
        ]
        self._both(scope, lambda store, _: append_messages(store, scope, session, drafts, expect))

    @rule(scope=SCOPES, spec=EPISODE_SPECS)
    def happen(self, scope: Scope, spec: Any) -> None:
        pairs = self._happenings(scope, [spec])
        self._both(scope, lambda store, side: store.episodes.add(scope, pairs[side][0].episode, pairs[side][0].raw))

    @rule(scope=SCOPES, trial=TRIALS)
    def count(self, scope: Scope, trial: Any) -> None:
        pick, task, success, minutes = trial
        pair, at = self._pick(scope, pick), START + timedelta(minutes=minutes)
        self._both(scope, lambda store, side: store.outcomes.count(scope, Trial(pair[side], task, success, at)))

    @rule(scope=SCOPES, mark=PROGRESS_MARKS)
    def advance(self, scope: Scope, mark: Any) -> None:
        self._both(scope, lambda store, _: store.advance(scope, *mark))

    @rule(what=st.sampled_from(["remove", "trim", "expire"]), scope=SCOPES, n=st.integers(0, 3))
    def clear_away(self, what: str, scope: Scope, n: int) -> None:
        calls: dict[str, Callable[[Any], int]] = {
            "remove": lambda store: store.episodes.remove(scope, [NAMES[n % 2], "nothing"]),
            "trim": lambda store: store.episodes.trim(scope, SESSIONS[n % 2], n),
            "expire": lambda store: store.episodes.expire(MOMENTS[n % 3]),
        }
        self._both(scope, lambda store, _: calls[what](store))
        self.written = {ANA, BEN}

    @rule(seconds=st.sampled_from([0.000_001, 1, 60, 3_600, -1, -3_600]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(what=st.sampled_from(["touch", "summarize", "embed", "drain", "rebuild"]), scope=SCOPES, n=st.integers(0, 7))
    def keep_house(self, what: str, scope: Scope, n: int) -> None:
        getattr(self, f"_{what}")(scope, n)

    def _apply(self, scope: Scope, specs: list[Any], request: str | None = None, episodes: Any = ()) -> None:
        cites = [self._cites(scope, spec[-1]["cites"]) if isinstance(spec[-1], dict) else () for spec in specs]
        pairs = list(zip(specs, cites, strict=True))
        happenings = self._happenings(scope, episodes)
        plans = [
            Plan(
                scope,
                tuple(self._step(scope, spec, each, side) for spec, each in pairs),
                request,
                episodes=tuple(happenings[side]),
            )
            for side in (0, 1)
        ]
        self._both(scope, lambda store, side: store.apply(plans[side]))

    def _summarize(self, scope: Scope, n: int) -> None:
        session = SESSIONS[n % 2]
        stored = self.stores[0].summary(scope, session)
        summary = Summary("In sum.", n % 4, (stored.version if stored else 0) + 1 + n // 6)
        self._both(scope, lambda store, _: store.summarize(scope, session, summary))

    def _touch(self, scope: Scope, n: int) -> None:
        pairs = [self._pick(scope, (n, each)) for each in (0, 5)]
        self._both(scope, lambda store, side: store.touch(scope, [pair[side] for pair in pairs]))

    def _embed(self, scope: Scope, n: int) -> None:
        for side, store in enumerate(self.stores):
            for pending in store.unembedded(MODEL, n + 1):
                applied = store.apply(
                    Plan(pending.scope, (Embed(pending.id, pending.hash, EMBEDDER.vectors(pending.text)),))
                )
                assert applied.outcomes == (Outcome(pending.id, "changed"),), side

    def _drain(self, scope: Scope, n: int) -> None:
        for side, store in enumerate(self.stores):
            entries = store.outbox(TARGET, n + 1)
            for entry in entries:
                owner = entry.scope
                assert entry.deleted is not bool(store.get_many(owner, [entry.item])), side
            if entries:
                store.settle(TARGET, entries[-1].seq)

    def _rebuild(self, scope: Scope, n: int) -> None:
        assert self.stores[0].rebuild() == self.stores[1].rebuild()

    # What must hold after each step

    @invariant()
    def shows_the_same(self) -> None:
        at = START + timedelta(seconds=61)
        for scope in (ANA, BEN):
            oracle, real = (View(store, scope, at, self._label(side)) for side, store in enumerate(self.stores))
            # The scope that was not written to is looked at less closely: this halves the time.
            whole = scope in self.written
            wanted, found = ((one.everything() if whole else one.items()) for one in (oracle, real))
            for name, value in wanted.items():
                assert found[name] == value, f"{name} of {scope}"
        states = [store.status() for store in self.stores]
        self.written = {ANA, BEN}
        counted = [(state.items, state.open_items, state.scopes, state.unembedded) for state in states]
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
                for change in changes.changes:
                    mirror.pop(change.id, None)
                    mirror |= {item.id: _unused(item) for item in store.get_many(ANA, [change.id])}
            items = store.page(ListQuery(ANA, history=True, limit=10_000))
            assert mirror == {item.id: _unused(item) for item in items}, side

    # How the two are kept in step

    def _both(self, scope: Scope, call: Callable[[Any, int], Any]) -> None:
        self.written = {scope}
        wanted, found = (_attempt(partial(call, store, side)) for side, store in enumerate(self.stores))
        if isinstance(wanted, Episode) and isinstance(found, Episode):
            assert label_episode(found, self._label(1)) == label_episode(wanted, self._label(0))
            return
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
            (
                name(outcome.id),
                outcome.status,
                {name(id) for id in outcome.others},
                {name(id) for id in outcome.marked},
                outcome.place,
            )
            for outcome in applied.outcomes
        ]

    def _label(self, side: int) -> Callable[[str | None], str | None]:
        return lambda id: None if id is None else self.labels[side].get(id, f"unknown {id == 'nothing'}")

    def _pick(self, scope: Scope, pick: tuple[int, int]) -> tuple[str, str]:
        """Mostly one that is there."""
        within = [one for one in self.known if one[0] == scope or pick[1] == 0]
        there = {item.id for item in self.stores[0].get_many(scope, [one[1] for one in within])}
        near = [one for one in within if one[1] in there or pick[1] < 2]
        if not near:
            return "nothing", "nothing"
        _, *pair = near[-1 - pick[0] % len(near)]  # 0 is the newest
        return pair[0], pair[1]

    def _cites(self, scope: Scope, specs: list[Any]) -> list[tuple[Citation, Citation]]:
        """Draw citations for both sides. Spans lie within the present text."""
        found = []
        for pick, edges in specs:
            if isinstance(pick, int):
                cite = Citation(refer_to_step(pick), *((0, 1) if edges else (None, None)))
                found.append((cite, cite))
                continue
            pair = self._pick(scope, pick)
            item = next(iter(self.stores[0].get_many(scope, [pair[0]])), None)
            long = len(item.text) if item else 9
            span = (None, None) if edges is None else (long * edges[0] // 9, long * edges[1] // 9)
            if item and (cited := item.text[slice(*span)].strip()):
                self.texts += [item.text, cited]
            found.append((Citation(pair[0], *span), Citation(pair[1], *span)))
        return found

    def _happenings(self, scope: Scope, specs: Any) -> tuple[list[EpisodeDraft], list[EpisodeDraft]]:
        """For both sides."""
        both: tuple[list[EpisodeDraft], list[EpisodeDraft]] = ([], [])
        for spec in specs:
            over = spec["over"]
            pair = (
                (refer_to_step(over),) * 2
                if isinstance(over, int)
                else self._pick(scope, over)
                if over
                else (None, None)
            )
            for side in (0, 1):
                both[side].append(make_episode(spec, pair[side]))
        return both

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
        place = SessionPosition(spec["place"][0], spec["place"][1], spec["place"][2], "user") if spec["place"] else None
        values = {name: spec[name] for name in ("kind", "importance", "slot", "metadata", "derived")}
        draft = fact(
            spec["text"],
            **values,
            position=place,
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
    return replace(label_item(item, lambda id: id), access_count=0, last_accessed=None)


def compare_with_reference(make: MakeStore, examples: int = 8, steps: int = 50, fixed: bool = True) -> None:
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


def make_episode(spec: dict[str, Any], item: str | None) -> EpisodeDraft:
    named = {name: spec[name] for name in ("id", "session", "importance", "count", "data", "key")}
    episode = Episode(
        **named,
        kind="turn",
        text="" if item else "It happened.",
        happened_at=START + timedelta(seconds=spec["happened"]),
        expires_at=_moment(spec["expires"]),
        item=item,
    )
    ends = _moment(spec["raw"])
    return EpisodeDraft(episode, RawOutput(f"Raw of {spec['importance']}.", ends) if ends else None)
