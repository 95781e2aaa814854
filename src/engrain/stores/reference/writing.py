"""Carry out the steps of one plan on a state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

from engrain.core.cutting import Span, cut
from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.ids import IdSource
from engrain.core.items import Cite, Draft, Item, Source
from engrain.core.journal import StepWrite
from engrain.core.passages import index_words
from engrain.core.plans import Add, Applied, Change, Correct, Embed, Forget, Outcome, Plan, Status, Step, again, gist
from engrain.core.reconcile import Version, mergeable, reconcile
from engrain.core.scope import Scope
from engrain.core.text import checked_metadata
from engrain.core.traits import traits
from engrain.stores.reference import journal
from engrain.stores.reference.cutting import moved, span
from engrain.stores.reference.state import Changed, State, Stored


class Transaction:
    """The state is changed in place: whoever starts a transaction throws it away if a step fails."""

    def __init__(self, state: State, scope: Scope, now: datetime, ids: IdSource, key: bytes) -> None:
        self.state, self.scope, self.now, self.ids, self.key = state, scope, now, ids, key

    def run(self, plan: Plan) -> Applied:
        first = self._answered(plan.request_id, plan.steps)
        if first:
            return replace(first, repeated=True)
        if plan.expect and self.state.numbers.get((self.scope, plan.expect[0]), 0) != plan.expect[1]:
            raise Conflict(f"the session {plan.expect[0]!r} has moved on: read it again.")
        done = self._recorded(plan.record) if plan.record else None
        if done:
            return done
        outcomes = tuple(self._step(step) for step in plan.steps)
        if plan.record:
            result = json.dumps([outcome.id for outcome in outcomes])
            journal.finish(self.state, plan.record.lease, replace(plan.record.end, result=result), self.now)
        applied = Applied(outcomes, self.state.seq)
        if plan.request_id is not None:
            self.state.requests[self.scope, plan.request_id] = (gist(plan.steps), applied)
        return applied

    def _add_once(self, step: Add) -> Outcome:
        first = None if self._kept_out(step.draft) else self._answered(step.request_id, (step,))
        if first:
            return again(first.outcomes[0])
        outcome = self._add(step.draft)
        if step.request_id is not None and outcome.id is not None:
            self.state.requests[self.scope, step.request_id] = (gist((step,)), Applied((outcome,), self.state.seq))
        return outcome

    def _answered(self, request_id: str | None, steps: tuple[Step, ...]) -> Applied | None:
        if request_id is None or (self.scope, request_id) not in self.state.requests:
            return None
        asked, answer = self.state.requests[self.scope, request_id]
        if steps and asked != gist(steps):
            raise Conflict(f"the request id {request_id!r} was used for another write. Give this one an id of its own.")
        return answer

    def _step(self, step: Step) -> Outcome:
        if isinstance(step, Add):
            return self._add_once(step)
        if isinstance(step, Correct):
            return self._correct(step)
        if isinstance(step, Change):
            return self._change(step)
        if isinstance(step, Forget):
            return self._forget(step)
        return self._embed(step)

    def _recorded(self, record: StepWrite) -> Applied | None:
        """The answer of a step that is done already; else it has begun."""
        begun = journal.begin(self.state, record.lease, record.start, self.now)
        if begun.status == "done":
            outcomes = tuple(Outcome(id, "repeated") for id in json.loads(begun.result or "[]"))
            return Applied(outcomes, self.state.seq, repeated=True)
        if begun.status not in journal.UNSETTLED:
            raise Conflict(f"the step {begun.name!r} is settled already: {begun.status}.")
        return None

    # Add

    def _add(self, draft: Draft) -> Outcome:
        if self._kept_out(draft):
            return Outcome(None, "kept_out")
        trust = self._trust(draft.source)
        taken = self._at_place(draft)
        if taken:
            if taken.item.text != draft.text:
                raise Conflict(f"place {taken.item.place} of session {taken.item.session!r} holds another text.")
            return self._repeat(taken.item.id, draft, trust)
        decision = reconcile(draft, self._hash(draft), self.now, self._versions(draft))
        if decision.repeats:
            return self._repeat(decision.repeats, draft, trust)
        item = self._item(draft, trust)
        item = replace(
            item,
            valid_from=decision.valid_from,
            valid_to=decision.valid_to,
            replaced_by=decision.replaced_by,
            **self._placed(draft),
        )
        self._insert(item, draft)
        if decision.closes:
            self._update(decision.closes, valid_to=decision.valid_from, replaced_by=item.id)
        status: Status = "behind" if decision.valid_to else "replaced" if decision.closes else "added"
        return Outcome(item.id, status, (decision.closes,) if decision.closes else (), place=item.place)

    def _kept_out(self, draft: Draft) -> bool:
        return draft.derived and (self.scope, self._fingerprint(draft.text)) in self.state.tombstones

    def _trust(self, source: Source) -> float:
        cited = [self._cited(cite) for cite in source.cites]
        return min([source.trust, *(one.item.trust for one in cited)])

    def _cited(self, cite: Cite) -> Stored:
        stored = self.state.known(self.scope, cite.item)
        if not stored:
            raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
        start, end = span(cite, stored.item.text)
        if not 0 <= start < end <= len(stored.item.text):
            raise InvalidInput(f"the cited span {start}:{end} is not in item {cite.item!r}.")
        return stored

    def _at_place(self, draft: Draft) -> Stored | None:
        if not draft.place or draft.place.number is None:
            return None
        wanted = (draft.place.session, draft.place.number)
        here = (one for one in self.state.within(self.scope) if (one.item.session, one.item.place) == wanted)
        return next((one for one in here if one.item.retracted_at is None), None)

    def _versions(self, draft: Draft) -> list[Version]:
        standing = [one for one in self.state.within(self.scope) if one.item.retracted_at is None]
        if draft.slot is not None:
            shown = [one for one in standing if one.item.slot == draft.slot]
        else:
            shown = [one for one in standing if _merges(one.item)]
        return [Version(one.item.id, one.hash, one.item.valid_from, one.item.valid_to) for one in shown]

    def _repeat(self, id: str, draft: Draft, trust: float) -> Outcome:
        old = self.state.items[id].item
        until = None if not (old.expires_at and draft.expires_at) else max(old.expires_at, draft.expires_at)
        self._update(
            id,
            importance=max(old.importance, draft.importance),
            sources=old.sources if draft.source in old.sources else (*old.sources, draft.source),
            trust=max(old.trust, trust),
            metadata=checked_metadata({**old.metadata, **draft.metadata}),
            expires_at=until,
        )
        return Outcome(id, "repeated", place=old.place)

    def _placed(self, draft: Draft) -> dict[str, Any]:
        if not draft.place:
            return {}
        session = (self.scope, draft.place.session)
        following = self.state.numbers.get(session, 0)
        number = following if draft.place.number is None else draft.place.number
        self.state.numbers[session] = max(following, number + 1)
        self.state.written[session] = self.state.seq + 1
        return {
            "session": draft.place.session,
            "place": number,
            "speaker": draft.place.speaker,
            "role": draft.place.role,
        }

    def _item(self, draft: Draft, trust: float) -> Item:
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
        self.state.items[item.id] = Stored(self.scope, item, self._hash(draft), draft.words, draft.traits, vectors)
        self._mark(item.id)

    # Correct, Change, Embed

    def _correct(self, step: Correct) -> Outcome:
        old = self._standing(step.id)
        draft = step.draft
        if self._kept_out(draft):
            return Outcome(None, "kept_out")
        trust = self._trust(draft.source)
        occurred = draft.occurred_at or old.occurred_at
        expires = draft.expires_at or old.expires_at
        draft = replace(draft, kind=old.kind, slot=old.slot, occurred_at=occurred, place=None, expires_at=expires)
        self._update(old.id, retracted_at=self.now)
        if _merges(replace(old, occurred_at=occurred)) and old.open:
            decision = reconcile(draft, self._hash(draft), self.now, self._versions(draft))
            if decision.repeats:
                self._update(old.id, replaced_by=decision.repeats)
                return replace(self._repeat(decision.repeats, draft, trust), others=(old.id,))
        item = replace(
            self._item(draft, trust),
            **{name: getattr(old, name) for name in ("valid_from", "valid_to", "replaced_by", "pinned")},
            **{name: getattr(old, name) for name in ("session", "place", "speaker", "role")},
        )
        self._insert(item, draft)
        self._update(old.id, replaced_by=item.id)
        return Outcome(item.id, "replaced", (old.id,), place=item.place)

    def _change(self, step: Change) -> Outcome:
        self._standing(step.id)
        wanted = {"importance": step.importance, "pinned": step.pinned, "metadata": step.metadata}
        self._update(step.id, **{name: value for name, value in wanted.items() if value is not None})
        return Outcome(step.id, "changed")

    def _embed(self, step: Embed) -> Outcome:
        stored = self.state.known(self.scope, step.id)
        if not stored:
            return Outcome(step.id, "missing")
        if stored.hash != step.hash:
            return Outcome(step.id, "stale")
        vectors = {**stored.vectors, step.vectors.model: step.vectors.rows}
        self.state.items[step.id] = replace(stored, vectors=vectors)
        self._mark(step.id)
        return Outcome(step.id, "changed")

    # Forget

    def _forget(self, step: Forget) -> Outcome:
        if not self.state.known(self.scope, step.id):
            return Outcome(step.id, "missing")
        gone = self._closure(step.id)
        spans = {} if step.keep_source else self._cited_spans(gone, step.id)
        for id in gone:
            stored = self.state.items.pop(id)
            self._entomb(stored.item.text)
            self._uncover(stored.item)
            self._mark(id, gone=True)
        for id, cuts in spans.items():
            self._cut(id, cuts)
        return Outcome(step.id, "forgotten", tuple(gone[1:]), tuple(spans))

    def _closure(self, id: str) -> list[str]:
        gone = [id]
        for one in gone:
            for item in (each.item for each in self.state.within(self.scope)):
                corrected = item.replaced_by == one and item.retracted_at is not None
                if item.id not in gone and (corrected or any(cite.item == one for cite in _cites(item))):
                    gone.append(item.id)
        return gone

    def _cited_spans(self, gone: Sequence[str], asked: str) -> dict[str, list[Span]]:
        """By item that stays. A cite of a whole item counts only if it is the forgotten item's own: else forgetting
        one message would take a summary with it, and the summary every other message of the session."""
        spans: dict[str, list[Span]] = {}
        for id in gone:
            for cite in _cites(self.state.items[id].item):
                whole = cite.start is None and cite.end is None
                if cite.item not in gone and (id == asked or not whole):
                    spans.setdefault(cite.item, []).append(span(cite, self.state.items[cite.item].item.text))
        return spans

    def _cut(self, id: str, spans: Sequence[Span]) -> None:
        stored = self.state.items[id]
        before = stored.item
        for text in (before.text, *(before.text[start:end] for start, end in spans)):
            self._entomb(text)
        # A relation would say in other fields what was cut out of the text.
        after = replace(before, text=cut(before.text, spans), relation=None)
        self.state.items[id] = Stored(
            self.scope,
            after,
            # Of its own: two items cut to the same words are still two.
            self._digest("cut", id, after.text),
            index_words(after.text, after.speaker, after.slot),
            traits(after.text, after.role),
        )
        self._uncover(before)
        self._mark(id)
        for other in self.state.within(self.scope):
            if any(cite.item == id for cite in _cites(other.item)):
                sources = tuple(moved(source, id, spans) for source in other.item.sources)
                self._update(other.item.id, sources=sources)

    def _entomb(self, text: str) -> None:
        self.state.tombstones.add((self.scope, self._fingerprint(text)))

    def _uncover(self, item: Item) -> None:
        """A summary that covers a forgotten message goes."""
        if item.session is None or item.place is None:
            return
        summary = self.state.summaries.get((self.scope, item.session))
        if summary and item.place < summary.upto:
            del self.state.summaries[self.scope, item.session]

    # Shared

    def _standing(self, id: str) -> Item:
        stored = self.state.known(self.scope, id)
        if not stored or stored.item.retracted_at is not None:
            raise NotFound(f"there is no item {id!r} in this scope.")
        return stored.item

    def _update(self, id: str, **values: Any) -> None:
        stored = self.state.items[id]
        self.state.items[id] = replace(stored, item=replace(stored.item, **values))
        self._mark(id)

    def _mark(self, id: str, gone: bool = False) -> None:
        self.state.seq += 1
        self.state.newest = self.now
        self.state.changes[id] = Changed(self.state.seq, self.scope, id, gone)

    def _hash(self, draft: Draft) -> str:
        relation = draft.relation
        parts = (relation.subject, relation.relation, relation.object) if relation else ()
        return self._digest("item", draft.kind, draft.text, *parts)

    def _fingerprint(self, text: str) -> str:
        return self._digest("text", text)

    def _digest(self, *parts: str) -> str:
        digest = hashlib.blake2b(key=self.key, digest_size=16)
        for part in parts:
            raw = part.encode()
            digest.update(b"%d:" % len(raw) + raw)
        return digest.hexdigest()


def _cites(item: Item) -> list[Cite]:
    return list(chain.from_iterable(source.cites for source in item.sources))


def _merges(item: Item) -> bool:
    """mergeable, for what is stored."""
    return mergeable(Draft(item.text, slot=item.slot, occurred_at=item.occurred_at)) and item.session is None
