"""The store on a Postgres server: every verb that changes items, each in one transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.model.erasure import make_erased_error
from engrain.core.model.items import Draft, Item, SessionPosition, Source
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
from engrain.stores.postgres.care import Care
from engrain.stores.postgres.deployment import Deployment
from engrain.stores.postgres.embedding import embed_all
from engrain.stores.postgres.filters import encode_filters
from engrain.stores.postgres.forget import forget
from engrain.stores.postgres.index_rows import flush, models_of, word_count
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.models import Models
from engrain.stores.postgres.sketches import SketchSearch
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.vectors import VectorSearch
from engrain.stores.postgres.words import WordSearch
from engrain.stores.postgres.work import Work
from engrain.stores.relational.dialect import Deferred
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

if TYPE_CHECKING:
    import psycopg

_SQL = load("queries.sql")


class PostgresStore(
    Deployment, VectorSearch, WordSearch, SketchSearch, Care, Models, ItemReads, Sessions, Dump, Restore
):
    """One schema of one database, any number of processes on any number of machines."""

    def apply(self, plan: Plan) -> Applied:
        self._know_models(models_of(plan.steps))
        with self.usage.taking(plan.scope) as uses:
            applied = self._writing(plan.scope, lambda db: self._apply(db, plan, uses))
        self._youth.wrote(len(plan.steps))
        return applied

    def _apply(self, db: Db, plan: Plan, uses: Uses) -> Applied | Deferred[Applied]:
        forgets = any(isinstance(step, Forget) for step in plan.steps)
        if forgets or plan.episodes:
            self.erasing.hold_stays(db, plan.scope)
        seq, micros = self._begin_write(db, plan.scope)
        work = Work(db, plan.scope.id, from_micros(micros), micros, self._key, self._models)
        since = None if plan.began is None else self.erasing.erased_since(db, plan)
        first = _answered(work, plan.request_id, plan.steps)
        if first:
            return first
        if forgets:
            self.erasing.check_held(db, plan.scope)
        steps = self.journal.open_steps(self.dialect.over(db, plan.scope), plan.record.lease) if plan.record else None
        if steps and plan.record and (done := steps.begin_memory(plan.record)) is not None:
            return Applied(tuple(Outcome(id_, "repeated") for id_ in done), seq, repeated=True)
        if plan.expect:
            _check_in_time(since)
            _check_expected(work, *plan.expect)
        if plan.summary_version:
            session, version = plan.summary_version
            check_summary_version(self.dialect.over(db, plan.scope), self._key, plan.scope, session, version)
        outcomes = self._outcomes(work, plan.steps)
        flush(work)
        for happening in plan.episodes:
            add_planned_episode(self.dialect.over(db, plan.scope), happening, work.given)
        if steps and plan.record:
            steps.finish_memory(plan.record, [one.id for one in outcomes])
        self._record(db, outcomes)
        write_uses(self.dialect.over(db, plan.scope), uses)
        ended = db.ask(_SQL["end_write"], (work.owner,)) if work.changed else None
        _check_in_time(since)
        if ended and plan.request_id is None:
            return Deferred(ended, lambda rows: Applied(outcomes, rows[0][0]))
        applied = Applied(outcomes, ended.fetchall()[0][0] if ended else seq)
        _keep_answer(work, plan.request_id, plan.steps, applied)
        return applied

    def _record(self, db: Db, outcomes: tuple[Outcome, ...]) -> None:
        gone = [one for one in outcomes if one.status == "forgotten"]
        if gone:
            items, cut = sum(1 + len(one.others) for one in gone), sum(len(one.marked) for one in gone)
            self.audit.write(self.dialect.over(db, None), "forget", {"items": items, "cut": cut})

    def _outcomes(self, work: Work, steps: tuple[Step, ...]) -> tuple[Outcome, ...]:
        embeds = [step for step in steps if isinstance(step, Embed)]
        if embeds and len(embeds) == len(steps):
            return embed_all(work, embeds)
        return tuple(self._numbered(work, number, step) for number, step in enumerate(steps))

    def _numbered(self, work: Work, number: int, step: Step) -> Outcome:
        if isinstance(step, (Add, Correct)):
            cited = {cite.item for cite in step.draft.source.cites if cite.item in work.given}
            draft = (
                resolve_references(step.draft, {name: _standing_for(work, name) for name in cited})
                if cited
                else step.draft
            )
            outcome = self._step(work, replace(step, draft=draft)) if draft else Outcome(None, "kept_out")
        else:
            outcome = self._step(work, step)
        work.given[refer_to_step(number)] = outcome.id
        return outcome

    def _step(self, work: Work, step: Step) -> Outcome:
        if isinstance(step, Add):
            return self._add_once(work, step)
        flush(work)
        if isinstance(step, Correct):
            return self._correct(work, step)
        if isinstance(step, Change):
            return _change(work, step)
        if isinstance(step, Forget):
            return forget(work, replace(step, id=work.given.get(step.id) or step.id))
        return embed_all(work, [step])[0]

    def _add_once(self, work: Work, step: Add) -> Outcome:
        if step.request_id is None:
            return self._add(work, step.draft)
        first = None if _kept_out(work, step.draft) else _answered(work, step.request_id, (step,))
        if first:
            return repeat_outcome(first.outcomes[0])
        outcome = self._add(work, step.draft)
        if outcome.id is not None:
            # A part of a plan has no number of its own that anybody asks for.
            _keep_answer(work, step.request_id, (step,), Applied((outcome,), 0))
        return outcome

    def _add(self, work: Work, draft: Draft) -> Outcome:
        if _kept_out(work, draft):
            return Outcome(None, "kept_out")
        trust = _trust(work, draft.source)
        taken = _at_place(work, draft.place)
        if taken:
            _, id_, text, place = taken
            if text != draft.text:
                raise Conflict(f"place {place} of session {draft.place.session!r} holds another text.")  # type: ignore[union-attr]
            return _repeat(work, id_, draft, trust)
        hash_ = work.hash_of(draft)
        decision = reconcile(draft, hash_.hex(), work.now, _versions(work, draft, hash_))
        if decision.repeats:
            return _repeat(work, decision.repeats, draft, trust)
        values = {
            "valid_from": to_micros(decision.valid_from),
            "valid_to": write_time(decision.valid_to),
            "replaced_by": decision.replaced_by,
            **_placed(work, draft.place),
        }
        new = self._ids(work.now)
        if decision.closes:
            work.change(_SQL["close_item"], (values["valid_from"], new, work.owner, decision.closes))
        _insert(work, new, draft, {**values, "hash": hash_, "trust": trust})
        status = "behind" if decision.valid_to else "replaced" if decision.closes else "added"
        return Outcome(new, status, (decision.closes,) if decision.closes else (), place=values["place"])  # type: ignore[arg-type]

    def _correct(self, work: Work, step: Correct) -> Outcome:
        old = _standing(work, step.id)
        draft = step.draft
        if _kept_out(work, draft):
            return Outcome(None, "kept_out")
        trust = _trust(work, draft.source)
        times = {name: getattr(draft, name) or getattr(old, name) for name in ("occurred_at", "expires_at")}
        draft = replace(draft, kind=old.kind, slot=old.slot, place=None, **times)
        hash_ = work.hash_of(draft)
        work.change(_SQL["retract_item"], (work.micros, work.owner, old.id))
        work.db.run(_SQL["drop_words"], {"scope": work.owner, "id": old.id})
        if is_mergeable(draft) and old.session is None and old.open:
            decision = reconcile(draft, hash_.hex(), work.now, _versions(work, draft, hash_))
            if decision.repeats:
                work.db.run(_SQL["point_item"], (decision.repeats, work.owner, old.id))
                return replace(_repeat(work, decision.repeats, draft, trust), others=(old.id,))
        new = self._ids(work.now)
        work.db.run(_SQL["point_item"], (new, work.owner, old.id))
        kept = {name: getattr(old, name) for name in ("replaced_by", "session", "place", "speaker", "role", "pinned")}
        validity = {"valid_from": to_micros(old.valid_from), "valid_to": write_time(old.valid_to)}
        _insert(work, new, draft, {**kept, **validity, "hash": hash_, "trust": trust})
        return Outcome(new, "replaced", (old.id,), place=old.place)


def _standing_for(work: Work, name: str) -> str | None:
    """The id of what a step gave, if it is still there; another name stands for itself."""
    if name not in work.given:
        return name
    id_ = work.given[name]
    return id_ if id_ is not None and work.db.rows(_SQL["hash_of"], (work.owner, id_)) else None


def _answered(work: Work, request_id: str | None, steps: tuple[Step, ...]) -> Applied | None:
    if request_id is None:
        return None
    first = work.db.rows(_SQL["request"], (work.owner, request_id))
    return read_answer(first[0][0], work.digest("asked", describe_request(steps)) if steps else None) if first else None


def _keep_answer(work: Work, request_id: str | None, steps: tuple[Step, ...], applied: Applied) -> None:
    if request_id is not None:
        answer = write_answer(applied, work.digest("asked", describe_request(steps)))
        work.db.run(_SQL["add_request"], (work.owner, request_id, answer, work.micros))


def _check_in_time(since: psycopg.Cursor[Any] | None) -> None:
    if since is not None and since.fetchall():
        raise make_erased_error()


def _check_expected(work: Work, session: str, length: int) -> None:
    rows = work.db.rows(_SQL["session_length"], (work.owner, session))
    found = rows[0][0] if rows else 0
    if found != length:
        raise Conflict(f"the session {session!r} has {found} messages, not {length}: read it again.")


def _kept_out(work: Work, draft: Draft) -> bool:
    return draft.derived and bool(work.db.rows(_SQL["tombstone"], (work.owner, work.digest("text", draft.text))))


def _trust(work: Work, source: Source) -> float:
    """The source's own, and no more than that of any item it cites."""
    trust = source.trust
    for cite in source.cites:
        rows = work.db.rows(_SQL["cited"], (work.owner, cite.item))
        if not rows:
            raise NotFound(f"the cited item {cite.item!r} is not in this scope.")
        cited_trust, length = rows[0]
        start, end = cite.start or 0, length if cite.end is None else cite.end
        if not (0 <= start < end <= length or cite.wordless):
            raise InvalidInput(f"the cited span {start}:{end} is not in item {cite.item!r}.")
        trust = min(trust, cited_trust)
    return trust


def _at_place(work: Work, place: SessionPosition | None) -> tuple[Any, ...] | None:
    if place is None or place.number is None:
        return None
    rows = work.db.rows(_SQL["at_place"], (work.owner, place.session, place.number))
    return rows[0] if rows else None


def _versions(work: Work, draft: Draft, hash_: bytes) -> list[StoredVersion]:
    """What reconcile needs: of a slot, the versions on either side; of words alone, the open item that has them."""
    if draft.slot is not None:
        slot = {"scope": work.owner, "slot": draft.slot, "at": to_micros(draft.occurred_at or work.now)}
        rows = work.db.rows(_SQL["slot_beside"], slot)
    elif is_mergeable(draft):
        rows = work.db.rows(_SQL["open_same"], (work.owner, hash_))
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
        rows = work.db.rows(_SQL["session_length"], (work.owner, place.session))
        number = rows[0][0] if rows else 0
    work.change(_SQL["grow_session"], {"scope": work.owner, "session": place.session, "length": number + 1})
    return {"session": place.session, "place": number, "speaker": place.speaker, "role": place.role}


def _insert(work: Work, new: str, draft: Draft, values: Mapping[str, Any]) -> None:
    relation = draft.relation
    row = {
        "id": new, "scope": work.owner, "kind": draft.kind, "importance": draft.importance, "pinned": False,
        "traits": draft.traits, "passages": draft.words.passages, "words": word_count(draft.words),
        "occurred_at": write_time(draft.occurred_at), "recorded_at": work.micros,
        "expires_at": write_time(draft.expires_at), "slot": draft.slot,
        "subject": relation.subject if relation else None, "relation": relation.relation if relation else None,
        "object": relation.object if relation else None, "metadata": write_metadata(draft.metadata),
        "filters": encode_filters(draft.metadata), "text": draft.text, "source_kind": draft.source.kind,
        "source_name": draft.source.name, **values,
    }  # fmt: skip
    work.change(_SQL["add_item"], row)
    _add_cites(work, new, 0, draft.source)
    if relation:
        for name in (relation.subject, relation.object):
            work.db.run(_SQL["add_entity"], {"scope": work.owner, "name": name.casefold(), "id": new})
    work.indexing.append((new, draft.words, draft.vectors))


def _add_source(work: Work, id_: str, number: int, source: Source) -> None:
    where = {"scope": work.owner, "id": id_, "number": number}
    work.db.run(_SQL["add_source"], {**where, "kind": source.kind, "name": source.name})
    _add_cites(work, id_, number, source)


def _add_cites(work: Work, id_: str, number: int, source: Source) -> None:
    where = {"scope": work.owner, "id": id_, "number": number}
    for cite in source.cites:
        work.db.run(_SQL["add_cite"], {**where, "cited": cite.item, "from": cite.start, "to": cite.end})


def _repeat(work: Work, id_: str, draft: Draft, trust: float) -> Outcome:
    ((place, stored),) = work.db.rows(_SQL["repeated"], (work.owner, id_))
    merged = check_metadata({**json.loads(stored), **draft.metadata}) if draft.metadata else None
    said = {
        "importance": draft.importance,
        "trust": trust,
        "expires": write_time(draft.expires_at),
        "metadata": None if merged is None else write_metadata(merged),
        "filters": None if merged is None else encode_filters(merged),
    }
    work.change(_SQL["repeat_item"], {**said, "scope": work.owner, "id": id_})
    ((found,),) = work.db.rows(_SQL["sources_of"], (work.owner, id_))
    if draft.source not in read_sources(found):
        ((free,),) = work.db.rows(_SQL["next_source"], (work.owner, id_))
        _add_source(work, id_, free, draft.source)
    return Outcome(id_, "repeated", place=place)


def _standing(work: Work, id_: str) -> Item:
    rows = work.db.rows(_SQL["standing"], (work.owner, id_))
    if not rows:
        raise NotFound(f"there is no item {id_!r} in this scope.")
    return read_item(rows[0])


def _change(work: Work, step: Change) -> Outcome:
    _standing(work, step.id)
    values = {
        "importance": step.importance,
        "pinned": step.pinned,
        "metadata": None if step.metadata is None else write_metadata(step.metadata),
        "filters": None if step.metadata is None else encode_filters(step.metadata),
        "expires_at": write_time(step.expires_at),
    }
    work.change(_SQL["change_item"], {**values, "scope": work.owner, "id": step.id})
    return Outcome(step.id, "changed")
