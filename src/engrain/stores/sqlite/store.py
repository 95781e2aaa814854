"""The embedded store: every verb that changes items, each in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Item, Relation, SessionPosition, Source
from engrain.core.model.plans import (
    Add,
    Applied,
    Change,
    Correct,
    Embed,
    Forget,
    Outcome,
    Plan,
    Step,
    describe_request,
    refer_to_step,
    repeat_outcome,
    resolve_references,
)
from engrain.core.rules.reconcile import StoredVersion, is_mergeable, reconcile
from engrain.core.validation import check_metadata
from engrain.stores.relational.dump import Dump
from engrain.stores.relational.episodes import add_planned_episode
from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.restore import Restore
from engrain.stores.relational.rows import (
    read_answer,
    read_item,
    read_sources,
    write_answer,
    write_metadata,
    write_time,
)
from engrain.stores.relational.sessions import Sessions, check_summary_version
from engrain.stores.relational.usage import Uses, write_uses
from engrain.stores.sqlite.backup import Backups
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.forget import forget
from engrain.stores.sqlite.health import Health
from engrain.stores.sqlite.holding import check_held
from engrain.stores.sqlite.scopes import check_began
from engrain.stores.sqlite.search import Search
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work

_SQL = load("queries.sql")


class SqliteStore(Search, Health, Backups, ItemReads, Sessions, Dump, Restore):
    """One file, many threads and processes. ":memory:" is a store that ends with its object."""

    def apply(self, plan: Plan) -> Applied:
        # Not at the top, because `import engrain` must not load numpy; not inside, because others wait for their turn.
        import engrain.stores.sqlite.index.rows  # noqa: F401

        with self.usage.taking(plan.scope) as uses:
            return self.transaction(lambda db: self._apply(db, plan, uses), plan.request_id)

    def _apply(self, db: Connection, plan: Plan, uses: Uses) -> Applied:
        work = self._work(db, plan.scope, self._scope(db, plan.scope))
        if plan.began is not None:
            check_began(db, self._key, plan)
        first = _answered(work, plan.request_id, plan.steps)
        if first:
            return first
        steps = self.journal.open_steps(self.dialect.over(db, plan.scope), plan.record.lease) if plan.record else None
        if steps and plan.record and (done := steps.begin_memory(plan.record)) is not None:
            return Applied(tuple(Outcome(id_, "repeated") for id_ in done), work.seq, repeated=True)
        if plan.expect:
            _check_expected(work, *plan.expect)
        if plan.summary_version:
            session, version = plan.summary_version
            check_summary_version(self.dialect.over(db, plan.scope), self._key, plan.scope, session, version)
        before = work.seq
        applied = Applied(tuple(self._steps(work, plan.steps)), work.seq)
        _index(work)
        for happening in plan.episodes:
            add_planned_episode(self.dialect.over(db, plan.scope), happening, work.given)
        if steps and plan.record:
            steps.finish_memory(plan.record, [one.id for one in applied.outcomes])
        self._record(db, applied)
        write_uses(self.dialect.over(db, plan.scope), uses)
        if work.seq != before:
            db.run(_SQL["set_counters"], {"seq": work.seq, "now": work.micros})
        _keep_answer(work, plan.request_id, plan.steps, applied)
        return applied

    def _work(self, db: Connection, scope: Scope, number: int | None) -> Work:
        if number is None:
            number = self._add_scope(db, scope)
        ((seq, newest),) = db.rows(_SQL["counters"])
        micros = max(to_micros(self._clock()), newest)
        return Work(db, scope, number, from_micros(micros), micros, seq, self._key)

    def _record(self, db: Connection, applied: Applied) -> None:
        gone = [one for one in applied.outcomes if one.status == "forgotten"]
        if gone:
            items, cut = sum(1 + len(one.others) for one in gone), sum(len(one.marked) for one in gone)
            self.audit.write(self.dialect.over(db, None), "forget", {"items": items, "cut": cut})

    def _steps(self, work: Work, steps: tuple[Step, ...]) -> Iterator[Outcome]:
        for number, step in enumerate(steps):
            if isinstance(step, (Add, Correct)) and step.draft.source.cites:
                draft = _named(work, step.draft)
                outcome = self._step(work, replace(step, draft=draft)) if draft else Outcome(None, "kept_out")
            else:
                outcome = self._step(work, step)
            work.given[refer_to_step(number)] = outcome.id
            yield outcome

    def _step(self, work: Work, step: Step) -> Outcome:
        if isinstance(step, Add):
            return self._add_once(work, step)
        _index(work)
        if isinstance(step, Correct):
            return self._correct(work, step)
        if isinstance(step, Change):
            return _change(work, step)
        if isinstance(step, Forget):
            check_held(work.db, work.scope_n)
            outcome = forget(work, replace(step, id=work.given.get(step.id) or step.id))
            if outcome.status == "forgotten":
                self._purge.mark(work.db)
            return outcome
        return _embed(work, step)

    def _add_once(self, work: Work, step: Add) -> Outcome:
        if step.request_id is None:
            return self._add(work, step.draft)
        first = None if _kept_out(work, step.draft) else _answered(work, step.request_id, (step,))
        if first:
            return repeat_outcome(first.outcomes[0])
        outcome = self._add(work, step.draft)
        if outcome.id is not None:
            _keep_answer(work, step.request_id, (step,), Applied((outcome,), work.seq))
        return outcome

    def _add(self, work: Work, draft: Draft) -> Outcome:
        if _kept_out(work, draft):
            return Outcome(None, "kept_out")
        trust = _trust(work, draft.source)
        taken = _at_place(work, draft.place)
        if taken:
            number, id_, text, place = taken
            if text != draft.text:
                raise Conflict(f"place {place} of session {draft.place.session!r} holds another text.")  # type: ignore[union-attr]
            return _repeat(work, (number, id_, place), draft, trust)
        hash_ = work.hash_of(draft)
        decision = reconcile(draft, hash_.hex(), work.now, _versions(work, draft, hash_))
        if decision.repeats:
            ((number, place),) = work.db.rows(_SQL["repeated"], (work.scope_n, decision.repeats))
            return _repeat(work, (number, decision.repeats, place), draft, trust)
        values = {
            "valid_from": to_micros(decision.valid_from),
            "valid_to": write_time(decision.valid_to),
            "replaced_by": decision.replaced_by,
            **_placed(work, draft.place),
        }
        new = self._ids(work.now)
        if decision.closes:
            closing = (values["valid_from"], new, work.mark(), work.scope_n, decision.closes)
            work.db.run(_SQL["close_item"], closing)
        _insert(work, new, draft, {**values, "hash": hash_, "trust": trust})
        status = "behind" if decision.valid_to else "replaced" if decision.closes else "added"
        return Outcome(new, status, (decision.closes,) if decision.closes else (), place=values["place"])  # type: ignore[arg-type]

    def _correct(self, work: Work, step: Correct) -> Outcome:
        number, old = _standing(work, step.id)
        draft = step.draft
        if _kept_out(work, draft):
            return Outcome(None, "kept_out")
        trust = _trust(work, draft.source)
        times = {name: getattr(draft, name) or getattr(old, name) for name in ("occurred_at", "expires_at")}
        draft = replace(draft, kind=old.kind, slot=old.slot, place=None, **times)
        hash_ = work.hash_of(draft)
        work.db.run(_SQL["retract_item"], (work.micros, work.mark(), number))
        if is_mergeable(draft) and old.session is None and old.open:
            decision = reconcile(draft, hash_.hex(), work.now, _versions(work, draft, hash_))
            if decision.repeats:
                work.db.run(_SQL["point_item"], (decision.repeats, number))
                ((same, place),) = work.db.rows(_SQL["repeated"], (work.scope_n, decision.repeats))
                return replace(_repeat(work, (same, decision.repeats, place), draft, trust), others=(old.id,))
        new = self._ids(work.now)
        work.db.run(_SQL["point_item"], (new, number))
        kept = {name: getattr(old, name) for name in ("replaced_by", "session", "place", "speaker", "role", "pinned")}
        validity = {"valid_from": to_micros(old.valid_from), "valid_to": write_time(old.valid_to)}
        _insert(work, new, draft, {**kept, **validity, "hash": hash_, "trust": trust})
        return Outcome(new, "replaced", (old.id,), place=old.place)


def _named(work: Work, draft: Draft) -> Draft | None:
    names = {cite.item for cite in draft.source.cites if cite.item in work.given}
    return resolve_references(draft, {name: work.standing(name) for name in names}) if names else draft


def _answered(work: Work, request_id: str | None, steps: tuple[Step, ...]) -> Applied | None:
    if request_id is None:
        return None
    first = work.db.rows(_SQL["request"], (work.scope_n, request_id))
    return read_answer(first[0][0], work.digest("asked", describe_request(steps)) if steps else None) if first else None


def _keep_answer(work: Work, request_id: str | None, steps: tuple[Step, ...], applied: Applied) -> None:
    if request_id is not None:
        answer = write_answer(applied, work.digest("asked", describe_request(steps)))
        work.db.run(_SQL["add_request"], (work.scope_n, request_id, answer, work.micros))


def _index(work: Work) -> None:
    """Index rows wait until here, so that the vectors of many items are coded in one go."""
    if work.indexing:
        # Not above: it needs numpy, which `import engrain` must not.
        from engrain.stores.sqlite.index.rows import write_index_many

        waiting, work.indexing = work.indexing, []
        write_index_many(work.db, waiting)


def _check_expected(work: Work, session: str, length: int) -> None:
    rows = work.db.rows(_SQL["session_length"], (work.scope_n, session))
    found = rows[0][0] if rows else 0
    if found != length:
        raise Conflict(f"the session {session!r} has {found} messages, not {length}: read it again.")


def _kept_out(work: Work, draft: Draft) -> bool:
    return draft.derived and bool(work.db.rows(_SQL["tombstone"], (work.scope_n, work.digest("text", draft.text))))


def _trust(work: Work, source: Source) -> float:
    """The source's own, and no more than that of any item it cites."""
    trust = source.trust
    for cite in source.cites:
        rows = work.db.rows(_SQL["cited"], (work.scope_n, cite.item))
        if not rows:
            raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
        _, cited_trust, length = rows[0]
        start, end = cite.start or 0, length if cite.end is None else cite.end
        if not (0 <= start < end <= length or cite.wordless):
            raise InvalidInput(f"the cited span {start}:{end} is not in item {cite.item!r}.")
        trust = min(trust, cited_trust)
    return trust


def _at_place(work: Work, place: SessionPosition | None) -> tuple[Any, ...] | None:
    if place is None or place.number is None:
        return None
    rows = work.db.rows(_SQL["at_place"], (work.scope_n, place.session, place.number))
    return rows[0] if rows else None


def _versions(work: Work, draft: Draft, hash_: bytes) -> list[StoredVersion]:
    """What reconcile needs: of a slot, the versions on either side; of words alone, the open item that has them."""
    if draft.slot is not None:
        slot = (work.scope_n, draft.slot, to_micros(draft.occurred_at or work.now))
        rows = work.db.rows(_SQL["slot_before"], slot) + work.db.rows(_SQL["slot_after"], slot)
    elif is_mergeable(draft):
        rows = work.db.rows(_SQL["open_same"], (work.scope_n, hash_))
    else:
        rows = []
    return [
        StoredVersion(id_, found.hex(), from_micros(begins), None if ends is None else from_micros(ends))
        for id_, found, begins, ends in rows
    ]


def _placed(work: Work, place: SessionPosition | None) -> dict[str, Any]:
    if place is None:
        return {"session": None, "place": None, "speaker": None, "role": None}
    number = place.number
    if number is None:
        rows = work.db.rows(_SQL["session_length"], (work.scope_n, place.session))
        number = rows[0][0] if rows else 0
    grown = {"scope": work.scope_n, "session": place.session, "length": number + 1, "changed": work.seq + 1}
    work.db.run(_SQL["grow_session"], grown)
    return {"session": place.session, "place": number, "speaker": place.speaker, "role": place.role}


def _insert(work: Work, new: str, draft: Draft, values: Mapping[str, Any]) -> None:
    relation = draft.relation
    sides = (relation.subject, relation.relation, relation.object) if relation else (None, None, None)
    row = (
        new, work.scope_n, work.mark(), draft.kind, draft.importance, values["trust"], bool(values.get("pinned")),
        draft.traits, draft.words.passages, write_time(draft.occurred_at), work.micros, values["valid_from"],
        values["valid_to"], write_time(draft.expires_at), values["place"], values["session"], values["speaker"],
        values["role"], draft.slot, values["replaced_by"], values["hash"], *sides, write_metadata(draft.metadata),
        draft.text,
    )  # fmt: skip
    work.db.run(_SQL["add_item"], row)
    number = work.db.last_row
    _add_source(work, number, 0, draft.source)
    if relation:
        _add_entities(work, number, relation)
    work.indexing.append((number, draft.words, draft.vectors))


def _add_source(work: Work, item: int, number: int, source: Source) -> None:
    work.db.run(_SQL["add_source"], (work.scope_n, item, number, source.kind, source.name))
    for cite in source.cites:
        ((cited, _, _),) = work.db.rows(_SQL["cited"], (work.scope_n, cite.item))
        work.db.run(_SQL["add_cite"], (work.scope_n, item, number, cited, cite.start, cite.end))


def _add_entities(work: Work, item: int, relation: Relation) -> None:
    for name in (relation.subject, relation.object):
        work.db.run(_SQL["add_entity"], (work.scope_n, name.casefold(), item))


def _repeat(work: Work, found: tuple[int, str, int | None], draft: Draft, trust: float) -> Outcome:
    number, id_, place = found
    said = {"importance": draft.importance, "trust": trust, "expires": write_time(draft.expires_at)}
    work.db.run(_SQL["repeat_item"], {**said, "changed": work.mark(), "n": number})
    if draft.metadata:
        ((known_metadata,),) = work.db.rows(_SQL["metadata_of"], (number,))
        merged = check_metadata({**json.loads(known_metadata), **draft.metadata})
        work.db.run(_SQL["set_metadata"], (write_metadata(merged), number))
    ((sources,),) = work.db.rows(_SQL["sources_of"], (number,))
    known = read_sources(sources)
    if draft.source not in known:
        ((free,),) = work.db.rows(_SQL["next_source"], (work.scope_n, number))
        _add_source(work, number, free, draft.source)
    return Outcome(id_, "repeated", place=place)


def _standing(work: Work, id_: str) -> tuple[int, Item]:
    rows = work.db.rows(_SQL["standing"], (work.scope_n, id_))
    if not rows:
        raise NotFound(f"there is no item {id_!r} in this scope.")
    return rows[0][0], read_item(rows[0])


def _change(work: Work, step: Change) -> Outcome:
    number, _ = _standing(work, step.id)
    values = {
        "importance": step.importance,
        "pinned": step.pinned,
        "metadata": None if step.metadata is None else write_metadata(step.metadata),
        "expires_at": write_time(step.expires_at),
    }
    work.db.run(_SQL["change_item"], {**values, "changed": work.mark(), "n": number})
    return Outcome(step.id, "changed")


def _embed(work: Work, step: Embed) -> Outcome:
    from engrain.stores.sqlite.index.rows import write_vectors

    rows = work.db.rows(_SQL["hash_of"], (work.scope_n, step.id))
    if not rows:
        return Outcome(step.id, "missing")
    number, hash_ = rows[0]
    if hash_.hex() != step.hash:
        return Outcome(step.id, "stale")
    write_vectors(work.db, number, step.vectors)
    work.db.run(_SQL["mark_item"], (work.mark(), number))
    return Outcome(step.id, "changed")
