"""Erasure in memory: the oracle of the port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import ConfigError, NotFound, OnHold
from engrain.core.identity import Scope, hash_keyed
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import (
    ErasedSubject,
    Erasure,
    Hold,
    Impact,
    ReasonChoice,
    Subject,
    add_reason,
    find_owner,
    first_summary_version,
    make_hold_error,
    remove_reasons,
)
from engrain.core.model.messages import read_calls
from engrain.core.model.plans import Forget
from engrain.core.rules.removal import find_addresses
from engrain.ports.erasure import NONE
from engrain_conformance.reference.audit import record
from engrain_conformance.reference.forget import forget, reached, remove
from engrain_conformance.reference.part import answered, counted, drop_session, episodes_of, find
from engrain_conformance.reference.state import ERASING, HIDDEN, KEYED, Holder, State, held
from engrain_conformance.reference.work import Work


class Eraser:
    """A view of the store."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def mark(self, subject: Subject) -> str:
        return hash_keyed(self._holder._key, *subject.parts())

    def reach(self, subject: Subject) -> Impact:
        with self._holder.whole() as state:
            return self._reach(state, subject)

    def _reach(self, state: State, subject: Subject) -> Impact:
        if subject.by == "user":
            scopes = _scopes(state, subject)
            return Impact({"scope": len(scopes), **_counts(state, scopes)}, tuple(scopes))
        if subject.scope in state.shut:
            return Impact()
        if subject.by == "id":
            gone = reached(self._work(state, subject.scope), Forget(subject.name))
            counts, _ = self._take_part(state.copy(), subject)
            return Impact(counts, (subject.scope,) if gone else (), tuple(gone))
        found = find(state, subject)
        counts = counted(state, subject, found)
        return Impact(counts, (subject.scope,) if any(counts.values()) else (), found.gone, tuple(found.lost_sources))

    def pieces(self, subject: Subject | None) -> Iterator[bytes]:
        """None: there is no file to look into."""
        return iter(())

    def copies(self) -> list[str]:
        return []

    def raw(self) -> Iterator[bytes]:
        return iter(())

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        with self._holder.writing() as state:
            if id in state.erasing:
                return state.erasing[id]
            refused = self._refused(state, subject)
            if refused is None:
                scopes = _scopes(state, subject) if subject.by == "user" else [subject.scope]
                if subject.by == "user":
                    state.shut.update(dict.fromkeys(scopes, ERASING))
                mark, now = self.mark(subject), _moment(state, self._holder)
                begun = Erasure(id, mark, subject.by, "shut", now, subject, tuple(scopes), notes=dict(notes))
                return state.erasing.setdefault(id, begun)
        raise refused

    def _refused(self, state: State, subject: Subject) -> OnHold | None:
        """On record, and a user hidden, if there is a hold on whose it is."""
        user = subject if subject.by == "user" else find_owner(subject.scope)
        held = state.holds.get(self.mark(user)) if user else None
        if user is None or held is None:
            return None
        if subject.by == "user":
            state.shut.update(dict.fromkeys(_scopes(state, subject), HIDDEN))
            state.holds[held.mark] = replace(held, hidden=True)
        told = {"by": subject.by, "reasons": held.reasons}
        record(state, self._holder, "erase_refused", told, self.mark(subject))
        return make_hold_error(user, held.reasons, hides=subject.by == "user")

    def keep(self, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        with self._holder.writing() as state:
            one = _known(state, id)
            if one.stage != "named":
                state.erasing[id] = replace(one, notes=dict(notes), prints=prints)

    def take(self, id: str) -> Erasure:
        with self._holder.writing() as state:
            one = _known(state, id)
            if one.stage != "shut" or one.subject is None:
                return one
            refused = self._refused(state, one.subject)
            if refused is None:
                take = self._take_scopes if one.by == "user" else self._take_part
                counts, ids = take(state, one.subject)
                # Of a part anything may be written from now on.
                at = one.at if one.by == "user" else _moment(state, self._holder)
                state.erasing[id] = replace(one, stage="rows", counts=counts, ids=tuple(ids), at=at)
                return state.erasing[id]
            del state.erasing[id]
        raise refused

    def _take_scopes(self, state: State, user: Subject) -> tuple[dict[str, int], Sequence[str]]:
        scopes = _scopes(state, user)
        counts = {"scope": len(scopes), **_counts(state, scopes)}
        for scope in scopes:
            work = self._work(state, scope)
            for stored in state.within(scope):
                state.tombstones.add((scope, work.fingerprint(stored.item.text)))
                del state.items[stored.item.id]
                work.mark(stored.item.id, gone=True)
            for name in KEYED:
                kept = {key: value for key, value in getattr(state, name).items() if key[0] != scope}
                setattr(state, name, kept)
        return counts, ()

    def _take_part(self, state: State, subject: Subject) -> tuple[dict[str, int], Sequence[str]]:
        work = self._work(state, subject.scope)
        if subject.by == "id":
            outcome = forget(work, Forget(subject.name))
            gone = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
            lost = answered(state, gone)
            for asked in lost:
                del state.requests[asked]
            counts = {"item": len(gone), "cut": len(outcome.marked), "request": len(lost)}
            return counts, [*gone, *outcome.marked]
        found = find(state, subject)
        counts = counted(state, subject, found)
        for id in found.gone:
            remove(work, id, id in found.tombstoned)
        for id, dead in found.lost_sources.items():
            sources = tuple(one for n, one in enumerate(state.items[id].item.sources) if n not in dead)
            work.update(id, sources=sources, trust=found.trust[id])
        for one in found.restored:
            work.update(one.id, valid_to=one.valid_to, replaced_by=one.replaced_by, retracted_at=None)
        for id, by in found.repointed.items():
            work.update(id, replaced_by=by)
        for key in [key for key in state.marks if key[0] == subject.scope and key[1] in found.reprocess_from]:
            state.marks[key] = min(state.marks[key], found.reprocess_from[key[1]])
        for asked in answered(state, found.gone):
            del state.requests[asked]
        if subject.by == "session":
            drop_session(state, subject)
        return counts, found.gone

    def unname(self, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        with self._holder.writing() as state:
            one = _known(state, id)
            if one.stage == "rows":
                for scope in one.scopes if one.by == "user" else ():
                    state.shut.pop(scope, None)
                    self._bury(state, scope)
                state.erasing[id] = replace(
                    one,
                    stage="named",
                    subject=None,
                    scopes=(),
                    ids=(),
                    notes=one.notes if notes is None else dict(notes),
                )
            return state.erasing[id]

    def _bury(self, state: State, scope: Scope) -> None:
        """Its tombstones lose its names."""
        mine = {one for one in state.tombstones if one[0] == scope}
        state.tombstones -= mine
        state.graves |= {(hash_keyed(self._holder._key, "scope", scope.id), hash) for _, hash in mine}

    def left(self, erasure: Erasure) -> Mapping[str, int]:
        total: dict[str, int] = {}
        with self._holder.whole() as state:
            for subject in dict.fromkeys(_subjects(state, erasure.by)):
                if self.mark(subject) != erasure.mark:
                    continue
                more = _left_of_user if erasure.by == "user" else self._left_of
                for kind, count in more(state, subject, erasure).items():
                    total[kind] = total.get(kind, 0) + count
        return total

    def _left_of(self, state: State, subject: Subject, erasure: Erasure) -> dict[str, int]:
        """Of a part of a scope, from before it."""
        reach, at = self._reach(state, subject), erasure.at
        left = {
            "item": sum(state.items[id].item.recorded_at <= at for id in reach.ids),
            "source": sum(state.items[id].item.recorded_at <= at for id in reach.kept),
        }
        if subject.by == "session":
            left["episode"] = sum(state.episodes[key].happened_at <= at for key in episodes_of(state, subject))
            said = [one.item for one in state.within(subject.scope) if one.item.session == subject.name]
            if all(one.recorded_at <= at for one in said):
                left |= _session_left(state, subject, erasure)
        return left

    def finish(self, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        with self._holder.writing() as state:
            one = _known(state, id)
            del state.erasing[id]
            state.erased[one.mark] = ErasedSubject(one.mark, one.by, one.at, id)
            return record(state, self._holder, "erase", receipt, one.mark)

    def running(self) -> list[Erasure]:
        with self._holder.whole() as state:
            return list(state.erasing.values())

    def erased(self, subject: Subject) -> ErasedSubject | None:
        with self._holder.whole() as state:
            return state.erased.get(self.mark(subject))

    def all_erased(self) -> list[ErasedSubject]:
        with self._holder.whole() as state:
            return list(state.erased.values())

    def barred(self, scope: Scope, texts: Sequence[str]) -> list[bool]:
        with self._holder.whole() as state:
            work = self._work(state, scope)
            return [work.entombed(text) for text in texts]

    def tombstones(self) -> Iterator[tuple[str, str]]:
        with self._holder.whole() as state:
            return iter([(scope.id, hash) for scope, hash in state.tombstones])

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        raise ConfigError("a store in memory is not restored from a backup.")

    def hold(self, subject: Subject, reason: str) -> Hold:
        mark = self.mark(subject)
        with self._holder.writing() as state:
            held = state.holds.get(mark, Hold(mark, self._holder.now(), ()))
            reasons = add_reason(held.reasons, reason)
            if reasons != held.reasons:
                state.holds[mark] = replace(held, reasons=reasons)
                record(state, self._holder, "hold", {"reason": reason}, mark)
            return state.holds[mark]

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        mark = self.mark(subject)
        with self._holder.writing() as state:
            known = state.holds[mark].reasons if mark in state.holds else ()
            left = remove_reasons(subject, known, reason)
            if left == known:
                return False
            if left:
                state.holds[mark] = replace(state.holds[mark], reasons=left)
            else:
                del state.holds[mark]
                for scope in _scopes(state, subject):
                    state.shut.pop(scope, None)
            for one in known:
                if one not in left:
                    record(state, self._holder, "release", {"reason": one}, mark)
            return True

    def holds(self) -> list[Hold]:
        with self._holder.whole() as state:
            return list(state.holds.values())

    def users(self) -> list[Subject]:
        with self._holder.whole() as state:
            shown = [one for one in _all_scopes(state) if state.shut.get(one) != ERASING]
        return [
            user for user in map(find_owner, dict.fromkeys(Scope(one.tenant, None, one.user) for one in shown)) if user
        ]

    def held(self, scope: Scope) -> bool:
        with self._holder.whole() as state:
            return held(state, self._holder._key, scope)

    def _work(self, state: State, scope: Scope) -> Work:
        return Work(state, scope, self._holder.now(), self._holder._ids, self._holder._key)


def hide(state: State, key: bytes, mark: str) -> None:
    """The scopes of a user who is known by the hash alone."""
    for scope in _all_scopes(state):
        if (user := find_owner(scope)) and hash_keyed(key, *user.parts()) == mark:
            state.shut[scope] = HIDDEN


def _moment(state: State, holder: Holder) -> datetime:
    """Now; what is written afterwards comes later, even if the clock was set back or stands still."""
    now = holder.now()
    state.newest = max(state.newest, now + timedelta(microseconds=1))
    return now


def _known(state: State, id: str) -> Erasure:
    if id not in state.erasing:
        raise NotFound(f"no erasure {id!r} is under way.")
    return state.erasing[id]


def _all_scopes(state: State) -> Iterable[Scope]:
    keyed_by = (scope for scopes in _by_scope(state).values() for scope in scopes)
    return dict.fromkeys([*(one.scope for one in state.items.values()), *keyed_by])


def _by_scope(state: State) -> dict[str, list[Scope]]:
    """The scope of each entry, by what there is: the list of what is removed is what is to be checked."""
    kinds = {one.name: getattr(state, one.name) for one in fields(state)}
    return {
        name: [key[0] for key in kind if isinstance(key, tuple) and isinstance(key[0], Scope)]
        for name, kind in kinds.items()
        if isinstance(kind, dict)
    }


def _scopes(state: State, subject: Subject) -> list[Scope]:
    tenant = subject.scope.tenant
    return [one for one in _all_scopes(state) if one.user == subject.name and one.tenant == tenant]


def _counts(state: State, scopes: Iterable[Scope]) -> dict[str, int]:
    wanted = set(scopes)
    counts = {name: sum(key[0] in wanted for key in getattr(state, name)) for name in KEYED}
    return {"item": sum(one.scope in wanted for one in state.items.values()), **counts}


def _session_left(state: State, subject: Subject, erasure: Erasure) -> dict[str, int]:
    """Of what has no time of its own, where nothing was said since: it is old, unless the erasure is complete, when
    none of it was left. Of a summary that says something the version tells whether it is old."""
    session = subject.scope, subject.name
    done, summary = state.erased.get(erasure.mark), state.summaries.get(session)
    is_complete = done is not None and done.at >= erasure.at
    old = summary is not None and summary.version <= first_summary_version(to_micros(erasure.at))
    left = {"summaries": int(old and bool(not is_complete or (summary and summary.text)))}
    return left | {kind: int(session in getattr(state, kind) and not is_complete) for kind in ("numbers", "written")}


def _left_of_user(state: State, user: Subject, erasure: Erasure) -> dict[str, int]:
    """What has no time of its own is old, unless something was written to its scope since."""
    total, at = dict[str, int](), erasure.at
    for scope in _scopes(state, user):
        times = {
            "item": [one.item.recorded_at for one in state.within(scope)],
            "episodes": [one.happened_at for key, one in state.episodes.items() if key[0] == scope],
            "trials": [one.at for key, one in state.trials.items() if key[0] == scope],
            "tasks": [one.started_at for key, one in state.tasks.items() if key[0] == scope],
        }
        counts = {kind: sum(time <= at for time in known) for kind, known in times.items()}
        if not any(time > at for known in times.values() for time in known):
            counts |= {kind: scopes.count(scope) for kind, scopes in _by_scope(state).items() if kind not in times}
        for kind, count in counts.items():
            total[kind] = total.get(kind, 0) + count
    return total


def _subjects(state: State, by: str) -> Iterator[Subject]:
    for scope in _all_scopes(state):
        items = [one.item for one in state.within(scope)]
        if by == "user" and (user := find_owner(scope)):
            yield user
        elif by == "session":
            yield from (Subject(scope, "session", name) for name in _sessions(state, scope))
        elif by == "source":
            names = {source.name for one in items for source in one.sources if source.name}
            calls = (call for one in items if one.role == "assistant" for call in read_calls(one.text, one.metadata))
            names |= {one for call in calls for one in find_addresses(call)}
            yield from (Subject(scope, "source", name) for name in names)
        elif by == "id":
            yield from (Subject(scope, "id", one.id) for one in items)


def _sessions(state: State, scope: Scope) -> set[str]:
    """By everything that names one."""
    said = {one.item.session for one in state.within(scope) if one.item.session}
    happened = {one.session for key, one in state.episodes.items() if key[0] == scope}
    kept = {key[1] for kind in (state.numbers, state.written, state.summaries) for key in kind if key[0] == scope}
    return said | happened | kept
