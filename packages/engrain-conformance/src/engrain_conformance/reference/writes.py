"""Carry out the steps of a plan in one transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.identity import hash_keyed
from engrain.core.model.erasure import find_subjects, make_erased_error
from engrain.core.model.items import Citation, Draft, Item, Source
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
from engrain.core.model.sessions import EpisodeDraft
from engrain.core.model.tasks import StepWrite
from engrain.core.rules.reconcile import (
    StoredVersion,
    choose_ended,
    is_mergeable,
    make_claim,
    merge_metadata,
    reconcile,
)
from engrain.core.rules.tombstone_hashes import hash_draft
from engrain_conformance.reference import episodes, tasks
from engrain_conformance.reference.forget import forget
from engrain_conformance.reference.state import StoredRow, WriteContext, check_not_held, get_summary


class Transaction(WriteContext):
    """Changes the state in place; the caller discards it if a step fails."""

    def run(self, plan: Plan) -> Applied:
        self.state.check_writable(self.scope)
        if plan.began is not None:
            self._check_began(plan, plan.began)
        asked = describe_request(plan.steps) if plan.asked is None and plan.steps else plan.asked
        first = self.find_answer(plan.request_id, asked)
        if first:
            return first
        if plan.expect and self.state.lengths.get((self.scope, plan.expect[0]), 0) != plan.expect[1]:
            raise Conflict(f"the session {plan.expect[0]!r} has moved on: read it again.")
        if plan.summary_version:
            self._check_version(*plan.summary_version)
        done = self._begin_step(plan.record) if plan.record else None
        if done:
            return done
        outcomes = tuple(self._run_step(number, step) for number, step in enumerate(plan.steps))
        for draft in plan.episodes:
            self._add_episode(draft)
        if plan.record:
            result = json.dumps([outcome.id for outcome in outcomes])
            tasks.finish_step(self.state, plan.record.lease, replace(plan.record.end, result=result), self.now)
        applied = Applied(outcomes, self.state.seq)
        if plan.request_id is not None:
            self.store_answer(Request(plan.request_id, asked or ""), applied)
        return applied

    def _check_began(self, plan: Plan, began: int) -> None:
        marks = {subject.hash(self.state.key) for subject in find_subjects(plan)}
        times = [(erasure.subject_hash, erasure.at) for erasure in self.state.erased.values()]
        times += [(erasure.subject_hash, erasure.at) for erasure in self.state.erasing.values()]
        if any(mark in marks and to_micros(at) >= began for mark, at in times):
            raise make_erased_error()

    def _check_version(self, session: str, version: int) -> None:
        if version != get_summary(self.state, self.scope, session).version:
            raise Conflict(f"what was said in session {session!r} is summed up or forgotten since: read it again.")

    def _run_step(self, number: int, step: Step) -> Outcome:
        if isinstance(step, (Add, Correct)):
            draft = resolve_references(step.draft, {name: self._resolve(name) for name in self.outcome_ids})
            outcome = self._dispatch(replace(step, draft=draft)) if draft else Outcome(None, "kept_out")
        else:
            outcome = self._dispatch(step)
        self.outcome_ids[refer_to_step(number)] = outcome.id
        return outcome

    def _resolve(self, name: str) -> str | None:
        """The item of an earlier step, if it still exists; any other id stays as it is."""
        id = self.outcome_ids.get(name, name)
        gone = name in self.outcome_ids and not self.state.find_item(self.scope, id or "")
        return None if gone else id

    def _add_episode(self, draft: EpisodeDraft) -> None:
        episode = draft.episode
        if episode.item is not None:
            item = self._resolve(episode.item)
            if item is None:
                return
            episode = replace(episode, item=item, id=episode.id or item)
        if not episode.id:
            raise InvalidInput("an episode without an item needs an id of its own.")
        episodes.store_episode(self.state, self.scope, EpisodeDraft(episode, draft.raw))

    def _add_unless_repeated(self, step: Add) -> Outcome:
        asked = describe_request((step,))
        first = None if self._is_forgotten(step.draft) else self.find_answer(step.request_id, asked)
        if first:
            return repeat_outcome(first.outcomes[0])
        outcome = self._add(step.draft)
        if step.request_id is not None and outcome.id is not None:
            self.store_answer(Request(step.request_id, asked), Applied((outcome,), 0))
        return outcome

    def find_answer(self, request_id: str | None, asked: str | None) -> Applied | None:
        if request_id is None or (self.scope, request_id) not in self.state.requests:
            return None
        first, answer = self.state.requests[self.scope, request_id]
        if asked is not None and first != hash_keyed(self.state.key, "asked", asked):
            raise Conflict(f"the request id {request_id!r} was used for another write. Give this one an id of its own.")
        return replace(answer, repeated=True)

    def store_answer(self, request: Request, answer: Applied) -> None:
        self.state.requests[self.scope, request.id] = (hash_keyed(self.state.key, "asked", request.asked), answer)
        self.state.answered[self.scope, request.id] = self.now

    def _dispatch(self, step: Step) -> Outcome:
        if isinstance(step, Add):
            return self._add_unless_repeated(step)
        if isinstance(step, Correct):
            return self._correct(step)
        if isinstance(step, Change):
            return self._change(step)
        if isinstance(step, Forget):
            check_not_held(self.state, self.scope)
            return forget(self, replace(step, id=self.outcome_ids.get(step.id) or step.id))
        return self._embed(step)

    def _begin_step(self, record: StepWrite) -> Applied | None:
        """Begin the step of a task. Return its answer if it is already done."""
        begun = tasks.begin_step(self.state, record.lease, record.start, self.now)
        if begun.status == "done":
            outcomes = tuple(Outcome(id, "repeated") for id in json.loads(begun.result or "[]"))
            return Applied(outcomes, self.state.seq, repeated=True)
        if begun.settled:
            raise Conflict(f"the step {begun.name!r} is settled already: {begun.status}.")
        return None

    def _add(self, draft: Draft) -> Outcome:
        if self._is_forgotten(draft):
            return Outcome(None, "kept_out")
        trust = self._measure_trust(draft.source)
        taken = self._find_at_place(draft)
        if taken:
            if taken.item.text != draft.text:
                raise Conflict(f"position {taken.item.place} of session {taken.item.session!r} holds another text.")
            return self._merge_repeated(taken.item.id, draft, trust)
        versions = self._list_versions(draft)
        decision = reconcile(draft, hash_draft(self.state.key, draft), self.now, versions)
        if decision.repeats:
            ended = self._close_ended(draft, trust, self.now, decision.repeats)
            return replace(self._merge_repeated(decision.repeats, draft, trust), others=ended)
        if claim := make_claim(draft, trust, decision, versions):
            return self._add(claim)
        item = self._make_item(draft, trust)
        item = replace(
            item,
            valid_from=decision.valid_from,
            valid_to=decision.valid_to,
            replaced_by=decision.replaced_by,
            **self._take_place(draft),
        )
        self._insert(item, draft)
        if decision.closes:
            self.update(decision.closes, valid_to=decision.valid_from, replaced_by=item.id)
        closed: tuple[str, ...] = (decision.closes,) if decision.closes else ()
        closed += self._close_ended(draft, trust, decision.valid_from, item.id)
        status: OutcomeStatus = "behind" if decision.valid_to else "replaced" if closed else "added"
        return Outcome(item.id, status, closed, place=item.place)

    def _close_ended(self, draft: Draft, trust: float, begins: datetime, new: str) -> tuple[str, ...]:
        ids = {self.outcome_ids.get(name, name) for name in draft.ends} - {None, new}
        found = [stored.item for id in ids if id and (stored := self.state.find_item(self.scope, id))]
        named = [
            StoredVersion(one.id, "", one.valid_from, one.valid_to, one.trust)
            for one in found
            if one.retracted_at is None
        ]
        ended = choose_ended(begins, trust, sorted(named, key=lambda one: one.id))
        for id in ended:
            self.update(id, valid_to=begins, replaced_by=new)
        return ended

    def _is_forgotten(self, draft: Draft) -> bool:
        return draft.derived and self.is_tombstoned(draft.text)

    def _measure_trust(self, source: Source) -> float:
        cited = [self._find_cited(cite) for cite in source.cites]
        return min([source.trust, *(stored.item.trust for stored in cited)])

    def _find_cited(self, cite: Citation) -> StoredRow:
        stored = self.state.find_item(self.scope, cite.item)
        if not stored:
            raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
        cite.check_span(len(stored.item.text))
        return stored

    def _find_at_place(self, draft: Draft) -> StoredRow | None:
        if not draft.position or draft.position.number is None:
            return None
        wanted = (draft.position.session, draft.position.number)
        here = (
            stored for stored in self.state.list_items(self.scope) if (stored.item.session, stored.item.place) == wanted
        )
        return next((item for item in here if item.item.retracted_at is None), None)

    def _list_versions(self, draft: Draft) -> list[StoredVersion]:
        standing = [stored for stored in self.state.list_items(self.scope) if stored.item.retracted_at is None]
        if draft.slot is not None:
            shown = [item for item in standing if item.item.slot == draft.slot]
        else:
            shown = [item for item in standing if _is_mergeable(item.item)]
        return [
            StoredVersion(item.item.id, item.hash, item.item.valid_from, item.item.valid_to, item.item.trust)
            for item in shown
        ]

    def _merge_repeated(self, id: str, draft: Draft, trust: float) -> Outcome:
        old = self.state.items[id].item
        until = None if not (old.expires_at and draft.expires_at) else max(old.expires_at, draft.expires_at)
        self.update(
            id,
            importance=max(old.importance, draft.importance),
            sources=old.sources if draft.source in old.sources else (*old.sources, draft.source),
            trust=max(old.trust, trust),
            metadata=merge_metadata(old.metadata, draft.metadata),
            expires_at=until,
        )
        return Outcome(id, "repeated", place=old.place)

    def _take_place(self, draft: Draft) -> dict[str, Any]:
        if not draft.position:
            return {}
        session = (self.scope, draft.position.session)
        following = self.state.lengths.get(session, 0)
        number = following if draft.position.number is None else draft.position.number
        self.state.lengths[session] = max(following, number + 1)
        self.state.last_writes[session] = self.state.seq + 1
        return {
            "session": draft.position.session,
            "place": number,
            "speaker": draft.position.speaker,
            "role": draft.position.role,
        }

    def _make_item(self, draft: Draft, trust: float) -> Item:
        return Item(
            id=self.ids(self.now),
            kind=draft.kind,
            text=draft.text,
            importance=draft.importance,
            recorded_at=self.now,
            valid_from=self.now,
            occurred_at=draft.occurred_at,
            slot=draft.slot,
            metadata=dict(draft.metadata),
            sources=(draft.source,),
            trust=trust,
            relation=draft.relation,
            expires_at=draft.expires_at,
        )

    def _insert(self, item: Item, draft: Draft) -> None:
        vectors = {draft.vectors.model: draft.vectors.rows} if draft.vectors else {}
        self.state.items[item.id] = StoredRow(
            self.scope, item, hash_draft(self.state.key, draft), draft.words, draft.traits, vectors
        )
        self.mark_changed(item.id)

    def _correct(self, step: Correct) -> Outcome:
        old = self._get_current(step.id)
        draft = step.draft
        if self._is_forgotten(draft):
            return Outcome(None, "kept_out")
        trust = self._measure_trust(draft.source)
        occurred = draft.occurred_at or old.occurred_at
        expires = draft.expires_at or old.expires_at
        draft = replace(draft, kind=old.kind, slot=old.slot, occurred_at=occurred, position=None, expires_at=expires)
        self.update(old.id, retracted_at=self.now)
        if _is_mergeable(replace(old, occurred_at=occurred)) and old.open:
            decision = reconcile(draft, hash_draft(self.state.key, draft), self.now, self._list_versions(draft))
            if decision.repeats:
                self.update(old.id, replaced_by=decision.repeats)
                return replace(self._merge_repeated(decision.repeats, draft, trust), others=(old.id,))
        item = replace(
            self._make_item(draft, trust),
            **{name: getattr(old, name) for name in ("valid_from", "valid_to", "replaced_by", "pinned")},
            **{name: getattr(old, name) for name in ("session", "place", "speaker", "role")},
        )
        self._insert(item, draft)
        self.update(old.id, replaced_by=item.id)
        return Outcome(item.id, "replaced", (old.id,), place=item.place)

    def _change(self, step: Change) -> Outcome:
        self._get_current(step.id)
        names = ("importance", "pinned", "metadata", "expires_at")
        wanted = {name: getattr(step, name) for name in names}
        self.update(step.id, **{name: value for name, value in wanted.items() if value is not None})
        return Outcome(step.id, "changed")

    def _embed(self, step: Embed) -> Outcome:
        stored = self.state.find_item(self.scope, step.id)
        if not stored:
            return Outcome(step.id, "missing")
        if stored.hash != step.hash:
            return Outcome(step.id, "stale")
        vectors = {**stored.vectors, step.vectors.model: step.vectors.rows}
        self.state.items[step.id] = replace(stored, vectors=vectors)
        self.mark_changed(step.id)
        return Outcome(step.id, "changed")

    def _get_current(self, id: str) -> Item:
        stored = self.state.find_item(self.scope, id)
        if not stored or stored.item.retracted_at is not None:
            raise NotFound(f"there is no item {id!r} in this scope.")
        return stored.item


def _is_mergeable(item: Item) -> bool:
    """Apply is_mergeable to a stored item."""
    return is_mergeable(Draft(item.text, slot=item.slot, occurred_at=item.occurred_at)) and item.session is None
