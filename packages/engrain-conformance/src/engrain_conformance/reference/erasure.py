"""Erasure and legal holds in memory."""

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
from engrain.core.rules.removal import (
    NO_TOOL_DERIVED,
    ItemLineage,
    MessageRow,
    RemovalPlan,
    SourceLineage,
    find_addresses,
    find_tool_derived,
    plan_removal,
)
from engrain.ports.erasure import NONE
from engrain_conformance.reference.forget import forget, list_reached, remove_item
from engrain_conformance.reference.state import (
    ERASING,
    HIDDEN,
    SCOPED_FIELDS,
    State,
    StateHolder,
    StateView,
    WriteContext,
    is_held,
    reads_all,
    record_audit,
    writes,
)


class ReferenceErasing(StateView):
    @reads_all
    def hash_subject(self, state: State, subject: Subject) -> str:
        return subject.hash(state.key)

    def measure(self, subject: Subject) -> Impact:
        with self.holder.whole() as state:
            return self._measure(state, subject)

    def _measure(self, state: State, subject: Subject) -> Impact:
        if subject.by == "user":
            own = _list_scopes(state, subject)
            return Impact({"scope": len(own), **_count_rows(state, own)}, tuple(own))
        if subject.scope in state.blocked:
            return Impact()
        if subject.by == "id":
            gone = list_reached(self._work(state, subject.scope), Forget(subject.name))
            counts, _ = self._delete_part(state.copy(), subject)
            return Impact(counts, (subject.scope,) if gone else (), tuple(gone))
        found = plan_part_removal(state, subject)
        counts = count_part(state, subject, found)
        return Impact(
            counts, (subject.scope,) if any(counts.values()) else (), found.deleted, tuple(found.lost_sources)
        )

    def search_terms(self, subject: Subject | None) -> Iterator[bytes]:
        return iter(())  # there is no file to search

    def copies(self) -> list[str]:
        return []

    def raw(self) -> Iterator[bytes]:
        return iter(())

    def begin(self, id: str, subject: Subject, notes: Mapping[str, Any] = NONE) -> Erasure:
        with self.holder.writing() as state:
            if id in state.erasing:
                return state.erasing[id]
            refused = self._refuse(state, subject)
            if refused is None:
                scopes = _list_scopes(state, subject) if subject.by == "user" else [subject.scope]
                if subject.by == "user":
                    state.blocked.update(dict.fromkeys(scopes, ERASING))
                subject_hash, now = self.hash_subject(subject), _take_moment(state, self.holder)
                begun = Erasure(id, subject_hash, subject.by, "blocked", now, subject, tuple(scopes), notes=dict(notes))
                return state.erasing.setdefault(id, begun)
        raise refused

    def _refuse(self, state: State, subject: Subject) -> OnHold | None:
        """The error if a hold protects the data. The refusal is recorded, and a held user is hidden."""
        user = subject if subject.by == "user" else find_owner(subject.scope)
        held = state.holds.get(self.hash_subject(user)) if user else None
        if user is None or held is None:
            return None
        if subject.by == "user":
            state.blocked.update(dict.fromkeys(_list_scopes(state, subject), HIDDEN))
            state.holds[held.subject_hash] = replace(held, hidden=True)
        told = {"by": subject.by, "reasons": held.reasons}
        record_audit(state, self.holder.now(), "erase_refused", told, self.hash_subject(subject))
        return make_hold_error(user, held.reasons, hides=subject.by == "user")

    @writes
    def save_progress(self, state: State, id: str, notes: Mapping[str, Any], prints: bytes) -> None:
        erasure = _get_running(state, id)
        if erasure.stage != "anonymized":
            state.erasing[id] = replace(erasure, notes=dict(notes), prints=prints)

    def delete_rows(self, id: str) -> Erasure:
        with self.holder.writing() as state:
            erasure = _get_running(state, id)
            if erasure.stage != "blocked" or erasure.subject is None:
                return erasure
            refused = self._refuse(state, erasure.subject)
            if refused is None:
                take = self._delete_user if erasure.by == "user" else self._delete_part
                counts, ids = take(state, erasure.subject)
                # From now on anything may be written to a part.
                at = erasure.at if erasure.by == "user" else _take_moment(state, self.holder)
                state.erasing[id] = replace(erasure, stage="deleted", counts=counts, ids=tuple(ids), at=at)
                return state.erasing[id]
            del state.erasing[id]
        raise refused

    def _delete_user(self, state: State, user: Subject) -> tuple[dict[str, int], Sequence[str]]:
        scopes = _list_scopes(state, user)
        counts = {"scope": len(scopes), **_count_rows(state, scopes)}
        for scope in scopes:
            work = self._work(state, scope)
            for stored in state.list_items(scope):
                work.add_tombstone(stored.item.text)
                del state.items[stored.item.id]
                work.mark_changed(stored.item.id, gone=True)
            for name in SCOPED_FIELDS:
                kept = {key: value for key, value in getattr(state, name).items() if key[0] != scope}
                setattr(state, name, kept)
        return counts, ()

    def _delete_part(self, state: State, subject: Subject) -> tuple[dict[str, int], Sequence[str]]:
        work = self._work(state, subject.scope)
        if subject.by == "id":
            outcome = forget(work, Forget(subject.name))
            gone = [subject.name, *outcome.others] if outcome.status == "forgotten" else []
            lost = list_requests(state, gone)
            for asked in lost:
                del state.requests[asked]
            counts = {"item": len(gone), "cut": len(outcome.marked), "request": len(lost)}
            return counts, [*gone, *outcome.marked]
        found = plan_part_removal(state, subject)
        counts = count_part(state, subject, found)
        for id in found.deleted:
            remove_item(work, id, id in found.tombstoned)
        for id, dead in found.lost_sources.items():
            sources = tuple(source for n, source in enumerate(state.items[id].item.sources) if n not in dead)
            work.update(id, sources=sources, trust=found.trust[id])
        for version in found.restored:
            work.update(version.id, valid_to=version.valid_to, replaced_by=version.replaced_by, retracted_at=None)
        for id, by in found.repointed.items():
            work.update(id, replaced_by=by)
        for key in [key for key in state.progress if key[0] == subject.scope and key[1] in found.reprocess_from]:
            state.progress[key] = min(state.progress[key], found.reprocess_from[key[1]])
        for asked in list_requests(state, found.deleted):
            del state.requests[asked]
        if subject.by == "session":
            drop_session(state, subject)
        return counts, found.deleted

    @writes
    def anonymize(self, state: State, id: str, notes: Mapping[str, Any] | None = None) -> Erasure:
        erasure = _get_running(state, id)
        if erasure.stage == "deleted":
            for scope in erasure.scopes if erasure.by == "user" else ():
                state.blocked.pop(scope, None)
                self._anonymize_tombstones(state, scope)
            state.erasing[id] = replace(
                erasure,
                stage="anonymized",
                subject=None,
                scopes=(),
                ids=(),
                notes=erasure.notes if notes is None else dict(notes),
            )
        return state.erasing[id]

    def _anonymize_tombstones(self, state: State, scope: Scope) -> None:
        """Replace the scope in its tombstones by a keyed hash."""
        mine = {tombstone for tombstone in state.tombstones if tombstone[0] == scope}
        state.tombstones -= mine
        state.erased_tombstones |= {(hash_keyed(state.key, "scope", scope.id), hash) for _, hash in mine}

    def count_remaining(self, erasure: Erasure) -> Mapping[str, int]:
        total: dict[str, int] = {}
        with self.holder.whole() as state:
            for subject in dict.fromkeys(_list_subjects(state, erasure.by)):
                if self.hash_subject(subject) != erasure.subject_hash:
                    continue
                more = _count_left_of_user if erasure.by == "user" else self._count_left
                for kind, count in more(state, subject, erasure).items():
                    total[kind] = total.get(kind, 0) + count
        return total

    def _count_left(self, state: State, subject: Subject, erasure: Erasure) -> dict[str, int]:
        """Count what is left of a part of a scope, from before the erasure."""
        reach, at = self._measure(state, subject), erasure.at
        left = {
            "item": sum(state.items[id].item.recorded_at <= at for id in reach.ids),
            "source": sum(state.items[id].item.recorded_at <= at for id in reach.remaining),
        }
        if subject.by == "session":
            left["episode"] = sum(
                state.episodes[key].happened_at <= at for key in list_session_episodes(state, subject)
            )
            said = [stored.item for stored in state.list_items(subject.scope) if stored.item.session == subject.name]
            if all(message.recorded_at <= at for message in said):
                left |= _count_session_left(state, subject, erasure)
        return left

    @writes
    def complete(self, state: State, id: str, receipt: Mapping[str, Any]) -> AuditEntry:
        erasure = _get_running(state, id)
        del state.erasing[id]
        state.erased[erasure.subject_hash] = ErasedSubject(erasure.subject_hash, erasure.by, erasure.at, id)
        return record_audit(state, self.holder.now(), "erase", receipt, erasure.subject_hash)

    @reads_all
    def running(self, state: State) -> list[Erasure]:
        return list(state.erasing.values())

    @reads_all
    def erased(self, state: State, subject: Subject) -> ErasedSubject | None:
        return state.erased.get(self.hash_subject(subject))

    @reads_all
    def all_erased(self, state: State) -> list[ErasedSubject]:
        return list(state.erased.values())

    @reads_all
    def find_tombstoned(self, state: State, scope: Scope, texts: Sequence[str]) -> list[bool]:
        work = self._work(state, scope)
        return [work.is_tombstoned(text) for text in texts]

    @reads_all
    def tombstones(self, state: State) -> Iterator[tuple[str, str]]:
        return iter([(scope.id, hash) for scope, hash in state.tombstones])

    def replay(self, erased: Sequence[ErasedSubject], tombstones: Sequence[tuple[str, str]]) -> Mapping[str, int]:
        raise ConfigError("a store in memory is not restored from a backup.")

    def hold(self, subject: Subject, reason: str) -> Hold:
        subject_hash = self.hash_subject(subject)
        with self.holder.writing() as state:
            held = state.holds.get(subject_hash, Hold(subject_hash, self.holder.now(), ()))
            reasons = add_reason(held.reasons, reason)
            if reasons != held.reasons:
                state.holds[subject_hash] = replace(held, reasons=reasons)
                record_audit(state, self.holder.now(), "hold", {"reason": reason}, subject_hash)
            return state.holds[subject_hash]

    def release(self, subject: Subject, reason: ReasonChoice = None) -> bool:
        subject_hash = self.hash_subject(subject)
        with self.holder.writing() as state:
            known = state.holds[subject_hash].reasons if subject_hash in state.holds else ()
            left = remove_reasons(subject, known, reason)
            if left == known:
                return False
            if left:
                state.holds[subject_hash] = replace(state.holds[subject_hash], reasons=left)
            else:
                del state.holds[subject_hash]
                for scope in _list_scopes(state, subject):
                    state.blocked.pop(scope, None)
            for known_reason in known:
                if known_reason not in left:
                    record_audit(state, self.holder.now(), "release", {"reason": known_reason}, subject_hash)
            return True

    @reads_all
    def holds(self, state: State) -> list[Hold]:
        return list(state.holds.values())

    def users(self) -> list[Subject]:
        with self.holder.whole() as state:
            shown = [scope for scope in _list_all_scopes(state) if state.blocked.get(scope) != ERASING]
        return [
            user
            for user in map(find_owner, dict.fromkeys(Scope(item.tenant, None, item.user) for item in shown))
            if user
        ]

    @reads_all
    def is_on_hold(self, state: State, scope: Scope) -> bool:
        return is_held(state, scope)

    def _work(self, state: State, scope: Scope) -> WriteContext:
        return WriteContext(state, scope, self.holder.now(), self.holder.ids)


def hide_user(state: State, subject_hash: str) -> None:
    """Hide the scopes of a user who is known only by the hash."""
    for scope in _list_all_scopes(state):
        if (user := find_owner(scope)) and user.hash(state.key) == subject_hash:
            state.blocked[scope] = HIDDEN


def _take_moment(state: State, holder: StateHolder) -> datetime:
    """Return the time now. Later writes get a later time, even if the clock stands still or goes back."""
    now = holder.now()
    state.newest = max(state.newest, now + timedelta(microseconds=1))
    return now


def _get_running(state: State, id: str) -> Erasure:
    if id not in state.erasing:
        raise NotFound(f"no erasure {id!r} is running.")
    return state.erasing[id]


def _list_all_scopes(state: State) -> Iterable[Scope]:
    keyed_by = (scope for scopes in _group_by_scope(state).values() for scope in scopes)
    return dict.fromkeys([*(item.scope for item in state.items.values()), *keyed_by])


def _group_by_scope(state: State) -> dict[str, list[Scope]]:
    """The scope of each entry, by field. Not by SCOPED_FIELDS: a field missing there must be noticed."""
    kinds = {field.name: getattr(state, field.name) for field in fields(state)}
    return {
        name: [key[0] for key in kind if isinstance(key, tuple) and isinstance(key[0], Scope)]
        for name, kind in kinds.items()
        if isinstance(kind, dict)
    }


def _list_scopes(state: State, subject: Subject) -> list[Scope]:
    tenant = subject.scope.tenant
    return [scope for scope in _list_all_scopes(state) if scope.user == subject.name and scope.tenant == tenant]


def _count_rows(state: State, scopes: Iterable[Scope]) -> dict[str, int]:
    wanted = set(scopes)
    counts = {name: sum(key[0] in wanted for key in getattr(state, name)) for name in SCOPED_FIELDS}
    return {"item": sum(item.scope in wanted for item in state.items.values()), **counts}


def _count_session_left(state: State, subject: Subject, erasure: Erasure) -> dict[str, int]:
    """Count rows without a time, if no message came since: they are old unless the erasure is complete.

    The version of a summary with a text tells whether it is old.
    """
    session = subject.scope, subject.name
    done, summary = state.erased.get(erasure.subject_hash), state.summaries.get(session)
    is_complete = done is not None and done.at >= erasure.at
    old = summary is not None and summary.version <= first_summary_version(to_micros(erasure.at))
    left = {"summaries": int(old and bool(not is_complete or (summary and summary.text)))}
    return left | {
        kind: int(session in getattr(state, kind) and not is_complete) for kind in ("lengths", "last_writes")
    }


def _count_left_of_user(state: State, user: Subject, erasure: Erasure) -> dict[str, int]:
    """Rows without a time count as old, unless something was written to their scope since."""
    total, at = dict[str, int](), erasure.at
    for scope in _list_scopes(state, user):
        times = {
            "item": [stored.item.recorded_at for stored in state.list_items(scope)],
            "episodes": [episode.happened_at for key, episode in state.episodes.items() if key[0] == scope],
            "trials": [trial.at for key, trial in state.trials.items() if key[0] == scope],
            "tasks": [task.started_at for key, task in state.tasks.items() if key[0] == scope],
            "records": [record.record.written_at for key, record in state.records.items() if key[0] == scope],
        }
        counts = {kind: sum(time <= at for time in known) for kind, known in times.items()}
        if not any(time > at for known in times.values() for time in known):
            counts |= {
                kind: scopes.count(scope) for kind, scopes in _group_by_scope(state).items() if kind not in times
            }
        for kind, count in counts.items():
            total[kind] = total.get(kind, 0) + count
    return total


def _list_subjects(state: State, by: str) -> Iterator[Subject]:
    for scope in _list_all_scopes(state):
        items = [stored.item for stored in state.list_items(scope)]
        if by == "user" and (user := find_owner(scope)):
            yield user
        elif by == "session":
            yield from (Subject(scope, "session", name) for name in _list_sessions(state, scope))
        elif by == "source":
            names = {source.name for item in items for source in item.sources if source.name}
            calls = (
                call for item in items if item.role == "assistant" for call in read_calls(item.text, item.metadata)
            )
            names |= {address for call in calls for address in find_addresses(call)}
            yield from (Subject(scope, "source", name) for name in names)
        elif by == "id":
            yield from (Subject(scope, "id", item.id) for item in items)


def _list_sessions(state: State, scope: Scope) -> set[str]:
    """The sessions that any field names."""
    said = {stored.item.session for stored in state.list_items(scope) if stored.item.session}
    happened = {episode.session for key, episode in state.episodes.items() if key[0] == scope}
    kept = {key[1] for kind in (state.lengths, state.last_writes, state.summaries) for key in kind if key[0] == scope}
    return said | happened | kept


def plan_part_removal(state: State, subject: Subject) -> RemovalPlan:
    items = [stored.item for stored in state.list_items(subject.scope)]
    said = sorted((item for item in items if item.kind == "message" and item.session), key=_session_order)
    lines = (_to_message_row(message, subject.name) for message in said)
    return plan_removal(
        subject,
        map(_to_lineage, items),
        find_tool_derived(subject.name, lines) if subject.by == "source" else NO_TOOL_DERIVED,
    )


def _session_order(item: Any) -> tuple[Any, ...]:
    return item.session, item.place or 0, item.id


def _to_message_row(item: Any, name: str) -> MessageRow:
    named = any(source.name == name for source in item.sources)
    return MessageRow(item.id, item.session, item.role, item.text, item.metadata, named)


def _to_lineage(item: Any) -> ItemLineage:
    origins = tuple(
        SourceLineage(number, source.kind, source.name, tuple(cite.item for cite in source.cites))
        for number, source in enumerate(item.sources)
    )
    retracted = item.retracted_at is not None
    place = (item.session, item.place, item.slot)
    return ItemLineage(item.id, item.kind, *place, origins, item.replaced_by, item.valid_to, retracted)


def count_part(state: State, subject: Subject, found: RemovalPlan) -> dict[str, int]:
    requests = list_requests(state, found.deleted)
    counts = {"item": len(found.deleted), "source": len(found.lost_sources), "request": len(requests)}
    if subject.by == "session":
        key = (subject.scope, subject.name)
        counts["episode"] = len(list_session_episodes(state, subject))
        counts["summary"] = int(key in state.summaries)
        counts["progress"] = sum(one[:2] == key for one in state.progress)
        counts["session"] = int(key in state.lengths or key in state.last_writes)
    return counts


def list_requests(state: State, gone: Sequence[str]) -> list[tuple[Scope, str]]:
    """The requests that were answered with one of these items."""
    return [asked for asked, (_, answer) in state.requests.items() if _names_any(answer.outcomes, gone)]


def _names_any(outcomes: Iterable[Any], gone: Sequence[str]) -> bool:
    return any(id in gone for outcome in outcomes for id in (outcome.id, *outcome.others, *outcome.marked))


def list_session_episodes(state: State, subject: Subject) -> list[tuple[Scope, str]]:
    mine = [(key, episode.session) for key, episode in state.episodes.items() if key[0] == subject.scope]
    return [key for key, session in mine if subject.by == "session" and session == subject.name]


def drop_session(state: State, subject: Subject) -> None:
    for key in list_session_episodes(state, subject):
        del state.episodes[key]
        state.raw_outputs.pop(key, None)
    for name in ("lengths", "last_writes", "summaries", "progress"):
        kept = {key: one for key, one in getattr(state, name).items() if key[:2] != (subject.scope, subject.name)}
        setattr(state, name, kept)
