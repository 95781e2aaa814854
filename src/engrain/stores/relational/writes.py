"""Write items: apply a plan of additions, corrections, changes and removals in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, EngrainError, NotFound
from engrain.core.identity import IdSource, Scope, hash_keyed
from engrain.core.model.erasure import find_subjects, make_erased_error
from engrain.core.model.items import Draft, Item, SessionPosition, Source, Vectors, Words
from engrain.core.model.plans import (
    Add,
    Applied,
    Change,
    Correct,
    Embed,
    Forget,
    Outcome,
    OutcomeStatus,
    Plan,
    Request,
    Step,
    describe_request,
    refer_to_step,
    repeat_outcome,
    resolve_references,
)
from engrain.core.rules.reconcile import (
    StoredVersion,
    choose_ended,
    is_mergeable,
    make_claim,
    merge_metadata,
    reconcile,
)
from engrain.core.rules.tombstone_hashes import hash_draft, hash_tombstone
from engrain.core.text.tokenizer import fold_entity
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Deferred, Dialect, Do, Pending, Transaction
from engrain.stores.relational.forget import forget_item
from engrain.stores.relational.rows import (
    read_answer,
    read_item,
    read_metadata,
    read_sources,
    read_time,
    write_answer,
    write_metadata,
    write_time,
)
from engrain.stores.relational.scopes import check_hold
from engrain.stores.relational.sessions import add_planned_episode, check_summary_version
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import UsageCounts, Uses, group_uses


class ItemWrites:
    """A part of the store."""

    dialect: Dialect
    usage: UsageCounts
    ids: IdSource
    audit: Audit
    journal: Tasks

    def apply(self, plan: Plan) -> Applied:
        vectors = list_vectors(plan.steps)
        self.dialect.prepare_index(_find_models(vectors))
        with self.dialect.encoding(vectors), self.usage.taking(plan.scope) as uses:
            applied = self.dialect.write(plan.scope, lambda tx: self._apply(tx, plan, uses), request_id=plan.request_id)
        self.dialect.after_writes(len(plan.steps))
        return applied

    def apply_many(self, plans: Sequence[Plan]) -> list[Applied | EngrainError]:
        def make_write(plan: Plan, uses: Uses) -> tuple[Scope, Do[Applied], str | None]:
            return plan.scope, lambda tx: self._apply(tx, plan, uses), plan.request_id

        vectors = [vectors for plan in plans for vectors in list_vectors(plan.steps)]
        self.dialect.prepare_index(_find_models(vectors))
        answers: list[Applied | EngrainError] = []
        with self.dialect.encoding(vectors):
            taken = [(plan, self.usage.take(plan.scope)) for plan in plans]
            try:
                answers = self.dialect.write_each([make_write(*write) for write in taken])
            finally:
                for number, (plan, uses) in enumerate(taken):
                    if not answers or isinstance(answers[number], EngrainError):
                        self.usage.give_back(plan.scope, uses)
        self.dialect.after_writes(sum(len(plan.steps) for plan in plans))
        return answers

    def _apply(self, tx: Transaction, plan: Plan, uses: Uses) -> Applied | Deferred[Applied]:
        forgets = any(isinstance(step, Forget) for step in plan.steps)
        if forgets or plan.episodes:
            tx.lock_holds(tx.owner)
        last_change, at = tx.begin_write()
        erased = _ask_erased(tx, plan)
        if plan.request_id is not None and (first := find_answer(tx, plan.request_id, _describe_plan(plan))):
            return first
        if forgets:
            check_hold(tx)
        journal = self.journal.open_steps(tx, plan.record.lease) if plan.record else None
        if journal and plan.record and (done := journal.begin_memory(plan.record)) is not None:
            return Applied(tuple(Outcome(id_, "repeated") for id_ in done), last_change, repeated=True)
        if plan.expect:
            _check_erased(erased)
            _check_session_length(tx, *plan.expect)
        if plan.summary_version:
            check_summary_version(tx, plan.scope, *plan.summary_version)
        writer = _StepWriter(tx, self.ids, at)
        outcomes = writer.write(plan.steps)
        for draft in plan.episodes:
            add_planned_episode(tx, draft, writer.ids_by_step)
        if journal and plan.record:
            journal.finish_memory(plan.record, [outcome.id for outcome in outcomes])
        self._record_forgotten(tx, outcomes)
        tx.many("add_uses", group_uses(uses))
        ended = tx.end_write() if tx.changes else None
        _check_erased(erased)
        if ended and plan.request_id is None:
            return Deferred(ended, lambda rows: Applied(outcomes, rows[0][0]))
        applied = Applied(outcomes, ended.fetchall()[0][0] if ended else last_change)
        if plan.request_id is not None:
            store_answer(tx, Request(plan.request_id, _describe_plan(plan) or ""), applied, at)
        return applied

    def _record_forgotten(self, tx: Transaction, outcomes: Iterable[Outcome]) -> None:
        forgotten = [outcome for outcome in outcomes if outcome.status == "forgotten"]
        if forgotten:
            items, cut = (
                sum(1 + len(removal.others) for removal in forgotten),
                sum(len(removal.marked) for removal in forgotten),
            )
            self.audit.write(tx, "forget", {"items": items, "cut": cut})


_ROWS = ("add_item", "add_source", "add_citation", "add_entity")


@dataclass(slots=True)
class _StepWriter:
    """Writes the steps of one plan, in their order."""

    tx: Transaction
    ids: IdSource
    at: int
    now: datetime = field(init=False)  # the same time as `at`
    ids_by_step: dict[str, str | None] = field(default_factory=dict)  # by reference to a step: the id of its item
    # Rows wait, so that those of many items are written in one go: by statement, in the order of _ROWS.
    _waiting: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in _ROWS})
    _waiting_keys: set[object] = field(default_factory=set)  # hashes and places of these items
    _lengths: dict[str, int] = field(default_factory=dict)  # of sessions
    _grown: dict[str, None] = field(default_factory=dict)  # sessions whose new length waits, in the order of growth
    _unindexed: list[tuple[str, Words, Vectors | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = from_micros(self.at)

    def write(self, steps: Sequence[Step]) -> tuple[Outcome, ...]:
        embeds = [step for step in steps if isinstance(step, Embed)]
        if embeds and len(embeds) == len(steps):
            return self._embed(embeds)
        outcomes = []
        for number, step in enumerate(steps):
            outcome = self._write_step(step)
            self.ids_by_step[refer_to_step(number)] = outcome.id
            outcomes.append(outcome)
        self._write_all()
        return tuple(outcomes)

    def _write_step(self, step: Step) -> Outcome:
        if isinstance(step, (Add, Correct)) and step.draft.source.cites:
            self._write_rows()
            draft = self._resolve_citations(step.draft)
            if draft is None:
                return Outcome(None, "kept_out")
            step = replace(step, draft=draft)
        if isinstance(step, Add):
            return self._add_once(step)
        self._write_all()
        if isinstance(step, Correct):
            return self._correct(step)
        if isinstance(step, Change):
            return self._change(step)
        if isinstance(step, Forget):
            return forget_item(self.tx, replace(step, id=self.ids_by_step.get(step.id) or step.id), self.at)
        return self._embed([step])[0]

    def _resolve_citations(self, draft: Draft) -> Draft | None:
        """None if the draft cites the item of a step that kept it out, or whose item is gone."""
        names = {cite.item for cite in draft.source.cites if cite.item in self.ids_by_step}
        return resolve_references(draft, {name: self._find_item_of(name) for name in names}) if names else draft

    def _find_item_of(self, name: str) -> str | None:
        id_ = self.ids_by_step[name]
        return id_ if id_ is not None and self.tx.rows("find_item", id=id_) else None

    def _add_once(self, step: Add) -> Outcome:
        if step.request_id is None:
            return self._add(step.draft)
        request = Request(step.request_id, describe_request((step,)))
        first = None if self._has_tombstone(step.draft) else find_answer(self.tx, request.id, request.asked)
        if first:
            return repeat_outcome(first.outcomes[0])
        outcome = self._add(step.draft)
        if outcome.id is not None:
            # Nobody asks for the change number of a part of a plan. An answer of change 0 is never dropped.
            store_answer(self.tx, request, Applied((outcome,), 0), self.at)
        return outcome

    def _add(self, draft: Draft) -> Outcome:
        if self._has_tombstone(draft):
            return Outcome(None, "kept_out")
        if draft.slot is not None or draft.ends:
            self._write_rows()
        trust = self._find_trust(draft.source)
        position = draft.position
        if position and position.number is not None and position.number < self._find_length(position.session):
            self._write_waiting((position.session, position.number))
            for id_, text in self.tx.rows("find_at_place", session=position.session, place=position.number):
                if text != draft.text:
                    raise Conflict(f"position {position.number} of session {position.session!r} holds another text.")
                return self._repeat(id_, draft, trust)
        hash_ = hash_draft(self.tx.dialect.key, draft)
        stored = self._load_versions(draft, hash_)
        decision = reconcile(draft, hash_, self.now, stored)
        if decision.repeats:
            ended = self._close_ended(draft, trust, self.now, decision.repeats)
            return replace(self._repeat(decision.repeats, draft, trust), others=ended)
        if claim := make_claim(draft, trust, decision, stored):
            return self._add(claim)
        place = self._take_place(position)
        new, begins = self.ids(self.now), to_micros(decision.valid_from)
        if decision.closes:
            self.tx.run("close_item", id=decision.closes, valid_to=begins, replaced_by=new)
        values = {"valid_from": begins, "valid_to": write_time(decision.valid_to), "trust": trust}
        self._insert(new, draft, hash_, {**place, **values, "replaced_by": decision.replaced_by})
        closed: tuple[str, ...] = (decision.closes,) if decision.closes else ()
        closed += self._close_ended(draft, trust, decision.valid_from, new)
        status: OutcomeStatus = "behind" if decision.valid_to else "replaced" if closed else "added"
        return Outcome(new, status, closed, place=place["place"])

    def _close_ended(self, draft: Draft, trust: float, begins: datetime, new: str) -> tuple[str, ...]:
        """Close the items that the draft names as ended, as far as it may."""
        if not draft.ends:
            return ()
        ids = {self.ids_by_step.get(name, name) for name in draft.ends} - {None, new}
        found = [read_item(row) for id_ in ids for row in self.tx.rows("load_unretracted_item", id=id_)]
        named = [
            StoredVersion(version.id, "", version.valid_from, version.valid_to, version.trust) for version in found
        ]
        ended = choose_ended(begins, trust, sorted(named, key=lambda version: version.id))
        for id_ in ended:
            self.tx.run("close_item", id=id_, valid_to=to_micros(begins), replaced_by=new)
        return ended

    def _correct(self, step: Correct) -> Outcome:
        old, draft = self._load_unretracted(step.id), step.draft
        if self._has_tombstone(draft):
            return Outcome(None, "kept_out")
        trust = self._find_trust(draft.source)
        times = {name: getattr(draft, name) or getattr(old, name) for name in ("occurred_at", "expires_at")}
        draft = replace(draft, kind=old.kind, slot=old.slot, position=None, **times)
        hash_ = hash_draft(self.tx.dialect.key, draft)
        self.tx.run("retract_item", id=old.id, at=self.at)
        self.tx.retract_index(old.id)
        if is_mergeable(draft) and old.session is None and old.open:
            decision = reconcile(draft, hash_, self.now, self._load_versions(draft, hash_))
            if decision.repeats:
                self.tx.run("point_item", id=old.id, replaced_by=decision.repeats)
                return replace(self._repeat(decision.repeats, draft, trust), others=(old.id,))
        new = self.ids(self.now)
        self.tx.run("point_item", id=old.id, replaced_by=new)
        same = {name: getattr(old, name) for name in ("replaced_by", "session", "place", "speaker", "role", "pinned")}
        validity = {"valid_from": to_micros(old.valid_from), "valid_to": write_time(old.valid_to)}
        self._insert(new, draft, hash_, {**same, **validity, "trust": trust})
        return Outcome(new, "replaced", (old.id,), place=old.place)

    def _change(self, step: Change) -> Outcome:
        self._load_unretracted(step.id)
        expires = write_time(step.expires_at)
        self.tx.run("change_item", id=step.id, importance=step.importance, pinned=step.pinned, expires_at=expires)
        if step.metadata is not None:
            self.tx.run("store_metadata", id=step.id, **self._metadata_values(step.metadata))
        return Outcome(step.id, "changed")

    def _embed(self, steps: Sequence[Embed]) -> tuple[Outcome, ...]:
        rows = self.tx.rows("load_hashes", ids=[step.id for step in steps])
        known = {id_: (n, hash_.hex()) for id_, n, hash_ in rows}
        vectors: dict[tuple[int, str], Vectors] = {}
        outcomes = []
        for step in steps:
            n, hash_ = known.get(step.id, (0, None))
            if hash_ == step.hash:
                vectors[n, step.vectors.model] = step.vectors
            status: OutcomeStatus = "missing" if hash_ is None else "changed" if hash_ == step.hash else "stale"
            outcomes.append(Outcome(step.id, status))
        if vectors:
            self.tx.replace_vectors(vectors)
            self.tx.many("mark_item", [{"n": n} for n, _ in vectors])
        return tuple(outcomes)

    # What is stored already

    def _has_tombstone(self, draft: Draft) -> bool:
        """A text that was forgotten is not derived again."""
        if not draft.derived:
            return False
        return bool(self.tx.rows("find_tombstone", hash=bytes.fromhex(hash_tombstone(self.tx.dialect.key, draft.text))))

    def _find_trust(self, source: Source) -> float:
        """The source's own trust, and no more than that of any item it cites."""
        trust = source.trust
        if not source.cites:
            return trust
        asked = [self.tx.ask("load_cited", id=cite.item) for cite in source.cites]
        for cite, found in zip(source.cites, [cursor.fetchall() for cursor in asked], strict=True):
            if not found:
                raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
            ((cited_trust, length),) = found
            cite.check_span(length)
            trust = min(trust, cited_trust)
        return trust

    def _load_versions(self, draft: Draft, hash_: str) -> list[StoredVersion]:
        """Load a slot's versions on either side; without a slot, the open item with the same text."""
        if draft.slot is not None:
            began = to_micros(draft.occurred_at or self.now)
            rows = self.tx.rows("load_slot_neighbours", slot=draft.slot, began=began)
        elif is_mergeable(draft):
            self._write_waiting(hash_)
            rows = self.tx.rows("find_open_same", hash=bytes.fromhex(hash_))
        else:
            rows = []
        return [
            StoredVersion(id_, found.hex(), from_micros(begins), read_time(ends), trust)
            for id_, found, begins, ends, trust in rows
        ]

    def _load_unretracted(self, id_: str) -> Item:
        rows = self.tx.rows("load_unretracted_item", id=id_)
        if not rows:
            raise NotFound(f"there is no item {id_!r} in this scope.")
        return read_item(rows[0])

    # Rows of one item

    def _take_place(self, place: SessionPosition | None) -> dict[str, Any]:
        if place is None:
            return {"session": None, "place": None, "speaker": None, "role": None}
        session, length = place.session, self._find_length(place.session)
        number = length if place.number is None else place.number
        if number >= length:
            self._lengths[session] = number + 1
        self._grown.pop(session, None)
        self._grown[session] = None
        return {"session": session, "place": number, "speaker": place.speaker, "role": place.role}

    def _find_length(self, session: str) -> int:
        if session not in self._lengths:
            self._lengths[session] = _find_session_length(self.tx, session)
        return self._lengths[session]

    def _insert(self, new: str, draft: Draft, hash_: str, values: Mapping[str, Any]) -> None:
        relation = draft.relation
        row = {
            "id": new, "kind": draft.kind, "importance": draft.importance, "pinned": False, "traits": draft.traits,
            "occurred_at": write_time(draft.occurred_at), "recorded_at": self.at,
            "expires_at": write_time(draft.expires_at), "slot": draft.slot, "hash": bytes.fromhex(hash_),
            "subject": relation.subject if relation else None, "relation": relation.relation if relation else None,
            "object": relation.object if relation else None, "text": draft.text,
            "passages": draft.words.passages, "metadata": write_metadata(draft.metadata),
            **self.tx.dialect.index_values(draft.words, draft.metadata), **values,
        }  # fmt: skip
        self._waiting["add_item"].append(row)
        self._waiting_keys.update((hash_, (row["session"], row["place"])))
        self._add_source(new, 0, draft.source)
        if relation:
            names = dict.fromkeys((fold_entity(relation.subject), fold_entity(relation.object)))
            self._waiting["add_entity"] += [{"id": new, "name": name} for name in names]
        self._unindexed.append((new, draft.words, draft.vectors))

    def _add_source(self, id_: str, number: int, source: Source) -> None:
        self._waiting["add_source"].append({"id": id_, "number": number, "kind": source.kind, "name": source.name})
        for cite in source.cites:
            span = {"cited": cite.item, "span_start": cite.start, "span_end": cite.end}
            self._waiting["add_citation"].append({"id": id_, "number": number, **span})

    def _repeat(self, id_: str, draft: Draft, trust: float) -> Outcome:
        ((place, metadata, sources, free),) = self.tx.rows("load_repeated", id=id_)
        expires = write_time(draft.expires_at)
        self.tx.run("repeat_item", id=id_, importance=draft.importance, trust=trust, expires_at=expires)
        if draft.metadata:
            merged = merge_metadata(read_metadata(metadata), draft.metadata)
            self.tx.run("store_metadata", id=id_, **self._metadata_values(merged))
        if draft.source not in read_sources(sources):
            self._add_source(id_, free, draft.source)
            self._write_rows()
        return Outcome(id_, "repeated", place=place)

    def _metadata_values(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        return {"metadata": write_metadata(metadata), **self.tx.dialect.index_values(metadata=metadata)}

    def _write_waiting(self, key: object) -> None:
        """Write what waits if an item of this key is among it, before the store is asked for that key."""
        if key in self._waiting_keys:
            self._write_rows()

    def _write_rows(self) -> None:
        for name, rows in self._waiting.items():
            if rows:
                self.tx.many(name, rows)
                rows.clear()
        self._waiting_keys.clear()

    def _write_all(self) -> None:
        self._write_rows()
        self.tx.many("grow_session", [{"session": name, "length": self._lengths[name]} for name in self._grown])
        self._grown.clear()
        self._lengths.clear()
        if self._unindexed:
            waiting, self._unindexed = self._unindexed, []
            # Asked at the end: `returning n` makes an insert in SQLite twice as slow.
            numbers = self.tx.find_numbers([id_ for id_, _, _ in waiting])
            self.tx.write_index([(numbers[id_], words, vectors) for id_, words, vectors in waiting])


def list_vectors(steps: Iterable[Step]) -> list[Vectors]:
    """The vectors that a plan brings along, but for empty ones."""
    found = [
        step.draft.vectors if isinstance(step, (Add, Correct)) else getattr(step, "vectors", None) for step in steps
    ]
    return [vectors for vectors in found if vectors and vectors.rows]


def _find_models(vectors: Iterable[Vectors]) -> dict[str, int]:
    """Their models, each with the dimension of the first."""
    found: dict[str, int] = {}
    for item_vectors in vectors:
        found.setdefault(item_vectors.model, len(item_vectors.rows[0]) // 4)
    return found


def find_answer(tx: Transaction, request_id: str | None, asked: str | None) -> Applied | None:
    """The answer to the first request of this id. Without `asked`, whatever it asked for."""
    rows = tx.rows("load_request", id=request_id) if request_id is not None else []
    return read_answer(rows[0][0], None if asked is None else hash_request(tx.dialect.key, asked)) if rows else None


def store_answer(tx: Transaction, request: Request, applied: Applied, at: int) -> None:
    answer = write_answer(applied, hash_request(tx.dialect.key, request.asked))
    tx.run("add_request", id=request.id, answer=answer, at=at)


def hash_request(key: bytes, asked: str) -> bytes:
    return bytes.fromhex(hash_keyed(key, "asked", asked))


def _describe_plan(plan: Plan) -> str | None:
    return describe_request(plan.steps) if plan.asked is None and plan.steps else plan.asked


def _ask_erased(tx: Transaction, plan: Plan) -> Pending | None:
    """Was a subject of the plan erased since its caller began?"""
    if plan.began is None:
        return None
    hashes = [subject.hash(tx.dialect.key) for subject in find_subjects(plan)]
    return tx.ask("find_erased_since", hashes=hashes, began=plan.began)


def _check_erased(erased: Pending | None) -> None:
    if erased is not None and erased.fetchall():
        raise make_erased_error()


def _check_session_length(tx: Transaction, session: str, length: int) -> None:
    found = _find_session_length(tx, session)
    if found != length:
        raise Conflict(f"the session {session!r} has {found} messages, not {length}: read it again.")


def _find_session_length(tx: Transaction, session: str) -> int:
    rows = tx.rows("find_session_length", session=session)
    return int(rows[0][0]) if rows else 0
