"""Semantic memory: facts, slots and relations, kept until they are forgotten."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from engrain.core.clock import Time, check_time
from engrain.core.errors import InvalidInput, NotFound, StoreCorrupt, TooLarge, tolerate
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import (
    ENDS_KEY,
    RESERVED_KEY,
    Item,
    Note,
    Relation,
    SessionPosition,
    Source,
    check_note,
    parse_note,
)
from engrain.core.model.plans import Applied, Change, Correct, Forget, Outcome, Plan, Request, make_request
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import Explanation, ForgetResult, Progress, count_progress
from engrain.core.model.retention import remaining_importance
from engrain.core.validation import (
    MAX_BATCH,
    check_count,
    check_key,
    check_metadata,
    check_name,
    check_optional_key,
    check_share,
    check_slot,
)
from engrain.ingest import write
from engrain.ingest.facts import unmark_earlier
from engrain.maintenance.schedule_and_sync import push_changes
from engrain.ports import Services
from engrain.ports.items import iterate_items

if TYPE_CHECKING:
    from engrain.maintenance.remove_unused import ConsolidationResult

# One transaction of a bulk forget: large enough to be quick, small enough that other writers get their turn.
FORGET_BATCH = 500
_PAGE_SIZE = 1_000
MAX_DERIVED = 200
# These kinds are versioned like slots, and have parts of their own.
_VERSIONED_KINDS = ("procedure", "summary")
_RELATIONS = parse_filter({"kind": "relation"})


class SemanticMemory:
    """The knowledge of one scope."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def remember(self, note: Note, request_id: str | None = None) -> str:
        """Keep a note word for word, and return its id."""
        request_id = check_optional_key(request_id, "request_id")
        return require_id(write.commit_notes([check_note(note)], self._scope, self._services, request_id).outcomes[0])

    def learn(
        self, content: str, importance: float = 0.5, source: str = "conversation", *, request_id: str | None = None
    ) -> str:
        """Keep a finding of the agent. It has the trust of the agent, whatever its source."""
        return self.remember(Note(content, importance, source=Source(source, "agent")), request_id)

    def remember_many(
        self, notes: Iterable[object], request_id: str | None = None, progress: Progress | None = None
    ) -> list[Outcome]:
        """Keep many notes, in transactions of a few hundred."""
        if isinstance(notes, (str, bytes, Mapping)):
            raise InvalidInput("remember_many takes a list of notes; for one text use remember.")
        checked = [check_note(parse_note(note)) for note in islice(notes, MAX_BATCH + 1)]
        if len(checked) > MAX_BATCH:
            raise TooLarge(f"more than {MAX_BATCH:,} notes in one call; hand them over in parts.")
        done = count_progress(progress, "notes", len(checked))
        request_id = check_optional_key(request_id, "request_id")
        return write.commit_batches(checked, self._scope, self._services, request_id, done)

    def consolidate(self, *, dry_run: bool = False) -> ConsolidationResult:
        """Remove knowledge of little importance that was rarely used; never a pinned, cited or recent item."""
        from engrain.maintenance.remove_unused import consolidate

        return consolidate(self._services, self._scope, dry_run=dry_run)

    def get(self, id: str) -> Item | None:
        """Return the item of this id, in any version; None if there is none."""
        return next(iter(self._services.items.get_many(self._scope, [check_key(id, "id")])), None)

    def change_number(self) -> int:
        """Return the store's last change, which a later write may give as its start."""
        return self._services.items.current_time()

    def all_valid(self, ids: Sequence[str]) -> bool:
        """True if none of these items was replaced, corrected, forgotten or has expired."""
        now = self._services.clock()
        return sum(item.visible(now) for item in self._services.items.get_many(self._scope, ids)) == len(ids)

    def list(
        self,
        where: Mapping[str, Any] | None = None,
        *,
        as_of: Time | None = None,
        history: bool = False,
        limit: int = 100,
        after: str | None = None,
    ) -> builtins.list[Item]:
        """Return items that match a filter, newest first."""
        check_count(limit, "limit", 1, MAX_BATCH)
        check_optional_key(after, "after")
        query = ListQuery(self._scope, parse_filter(where), parse_as_of(as_of), history, limit, after)
        return self._services.items.page(query)

    def correct(self, id: str, note: Note, request_id: str | None = None) -> str:
        """Replace the text of an item. The new version keeps all other values of the old one."""
        request = make_request(request_id, "correct", check_key(id, "id"), note.text, note.source)
        if first := self._services.items.answer(self._scope, request):
            return require_id(first.outcomes[0])
        old = self._require_current(id)
        if old.kind == "relation":
            raise InvalidInput(f"{id!r} is a relation: forget it, and add what is right.")
        place = SessionPosition(old.session, None, old.speaker, old.role) if old.session else None
        note = check_note(
            replace(note, importance=old.importance, metadata=old.metadata, slot=old.slot, position=place)
        )
        (draft,) = write.build_drafts([note], self._services)
        plan = Plan(self._scope, (Correct(old.id, draft),), request_id, asked=request.asked if request else None)
        return require_id(self._services.items.apply(plan).outcomes[0])

    def change(self, change: Change, request_id: str | None = None) -> None:
        """Set values that make no new version."""
        if change.importance is not None:
            check_share(change.importance, "importance")
        if change.pinned is not None and not isinstance(change.pinned, bool):
            raise InvalidInput(f"pinned must be True or False, not {change.pinned!r}.")
        if change.metadata is not None:
            change = replace(change, metadata=check_metadata(change.metadata))
        if change == Change(change.id):
            raise InvalidInput("update takes at least one of importance, pinned, metadata and expires_at.")
        request = make_request(request_id, "update", change)
        if self._services.items.answer(self._scope, request) is None:
            own = self._require_current(change.id).metadata.get(RESERVED_KEY)
            if change.metadata is not None and own is not None:
                # The steps of a procedure and the calls of a message are not the caller's to drop.
                change = replace(change, metadata={**change.metadata, RESERVED_KEY: own})
            self._services.items.apply(
                Plan(self._scope, (change,), request_id, asked=request.asked if request else None)
            )

    def forget(
        self, what: str | Mapping[str, Any], *, keep_source: bool = False, request_id: str | None = None
    ) -> ForgetResult:
        """Remove an item, or all that match a filter, with everything derived from it, from every store."""
        if isinstance(what, str):
            step = Forget(check_key(what, "id"), keep_source)
            gone: Sequence[Item] = ()
            with tolerate(StoreCorrupt):  # a damaged item can be forgotten as well
                gone = self._services.items.get_many(self._scope, [step.id])
            plan = Plan(self._scope, (step,), check_optional_key(request_id, "request_id"))
            outcomes = self._services.items.apply(plan).outcomes
            self._undo_marks(gone)
            if outcomes[0].status == "missing":
                raise self._not_found(what)
        else:
            outcomes = self._forget_matching(what, keep_source, make_request(request_id, "forget", what, keep_source))
        if not outcomes:
            return ForgetResult((), ())
        return finish_forgetting(outcomes, self._scope, self._services)

    def _forget_matching(self, what: object, keep_source: bool, request: Request | None) -> tuple[Outcome, ...]:
        """Forget in batches. A repeated request continues with the items that the first call found."""
        where = parse_filter(what) if isinstance(what, Mapping) else None
        if where is None:
            raise InvalidInput('forget takes an id or a filter such as {"source": "page"}; an empty one is refused.')
        items, outcomes = self._services.items, builtins.list[Outcome]()
        query = ListQuery(self._scope, where, history=True, limit=_PAGE_SIZE)
        find = lambda: Applied(value=[item.id for item in iterate_items(items, query)])  # noqa: E731
        ids = items.once(self._scope, request, find).value
        for start in range(0, len(ids), FORGET_BATCH):
            batch = ids[start : start + FORGET_BATCH]
            gone, steps = items.get_many(self._scope, batch), tuple(Forget(id, keep_source) for id in batch)
            part = None if request is None else f"{request.id}\x1f{start}"
            outcomes += items.apply(Plan(self._scope, steps, part)).outcomes
            self._undo_marks(gone)
        return tuple(outcomes)

    def _undo_marks(self, gone: Sequence[Item]) -> None:
        """Let items that only a forgotten fact made older count as current again."""
        for mark in unmark_earlier(gone, self._scope, self._services):
            with tolerate(NotFound):  # forgotten as well
                self._services.items.apply(Plan(self._scope, (mark,)))

    def explain(self, id: str) -> Explanation:
        """Return the sources of an item, the items that it cites, and those that cite it."""
        item = self._require(id)
        items = self._services.items
        links = items.lineage(self._scope, [item.id])
        cited = items.get_many(self._scope, [link.cite.item for link in links if link.item == item.id])
        citing = items.get_many(self._scope, [link.item for link in links if link.cite.item == item.id])
        versions = items.history(self._scope, item.slot) if item.slot else items.corrected(self._scope, item.id)
        changed = [id for id in _list_changed(item) if id not in {version.id for version in versions}]
        versions += items.get_many(self._scope, changed) if changed else []
        half_life = self._services.policies.half_life_days
        remaining = remaining_importance(item, self._services.clock(), half_life) if half_life else None
        return Explanation(item, tuple(cited), tuple(citing), tuple(versions), remaining)

    def _require_current(self, id: str) -> Item:
        item = self._require(id)
        if item.retracted_at:
            raise NotFound(f"{id!r} was corrected: {item.replaced_by!r} stands in its place. Use that id.")
        return item

    def _require(self, id: str) -> Item:
        item = self.get(id)
        if item is None:
            raise self._not_found(id)
        return item

    def _not_found(self, id: str) -> NotFound:
        return NotFound(f"there is no item {id!r} in this memory ({self._scope}). `list` shows its items.")


class Slots:
    """The slots of one scope. A slot, such as user.city, holds one value at a time."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def get(self, name: str, *, as_of: Time | None = None) -> Item | None:
        """Return the item in this slot, now or at a time."""
        return self._services.items.slot(self._scope, check_slot(name), parse_as_of(as_of))

    def list(self, prefix: str = "", *, as_of: Time | None = None) -> builtins.list[Item]:
        """Return every filled slot whose name starts with the prefix, by name."""
        found = self._services.items.slots(self._scope, check_name(prefix, "slot prefix"), parse_as_of(as_of))
        return [item for item in found if item.kind not in _VERSIONED_KINDS]

    def history(self, name: str) -> builtins.list[Item]:
        """Return every value that this slot has had, oldest first."""
        return self._services.items.history(self._scope, check_slot(name))


class Relations:
    """The relations of one scope, such as Ana works at Acme. Each is an item."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def add(
        self,
        subject: str,
        relation: str,
        object: str,
        *,
        importance: float = 0.5,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a relation and return its id: relations.add("Ana", "works at", "Acme")."""
        between = Relation(subject, relation, object)
        note = Note(f"{subject} {relation} {object}", importance, None, metadata, source, relation=between)
        return SemanticMemory(self._services, self._scope).remember(note, request_id)

    def about(self, entity: str, *, as_of: Time | None = None) -> builtins.list[Item]:
        """Return the relations of an entity, newest first."""
        return self._services.items.about(self._scope, check_key(entity, "entity"), parse_as_of(as_of))

    def list(self, *, as_of: Time | None = None, limit: int = 100, after: str | None = None) -> builtins.list[Item]:
        """Return all relations, newest first. For the next page pass the last id as `after`."""
        check_count(limit, "limit", 1, MAX_BATCH)
        query = ListQuery(self._scope, _RELATIONS, parse_as_of(as_of), False, limit, after)
        return self._services.items.page(query)


def finish_forgetting(outcomes: Sequence[Outcome], scope: Scope, services: Services) -> ForgetResult:
    """Remove the bytes of forgotten items from every store, and return what was forgotten."""
    forgotten = [outcome for outcome in outcomes if outcome.status == "forgotten"]
    ids = tuple(dict.fromkeys(id for outcome in forgotten for id in (outcome.id, *outcome.others) if id))
    marked = tuple(dict.fromkeys(id for outcome in outcomes for id in outcome.marked))
    done = write.finish_forgetting(ids, marked, scope, services)
    if ids or marked:
        done = push_changes(services.feed, scope, [*ids, *marked]) and done
    return ForgetResult(ids, marked, pending=not done)


def find_derived(explain: Callable[[str], Explanation], id: str) -> builtins.list[Item]:
    """Return the items that rest on this one, directly or through others, nearest first. They go with it."""
    found: dict[str, Item] = {}
    pending = [id]
    while pending and len(found) < MAX_DERIVED:
        for item in explain(pending.pop(0)).cited_by:
            if item.id not in found and item.id != id:
                found[item.id] = item
                pending.append(item.id)
    return [*found.values()]


def parse_as_of(as_of: Time | None) -> datetime | None:
    """Parse a time. A date means the end of that day."""
    return None if as_of is None else check_time(as_of, "as_of", end_of_day=True)


@dataclass(frozen=True)
class RememberCall:
    """A call of `remember`: the memory's scope, and the arguments by name."""

    scope: Scope
    arguments: Mapping[str, Any]

    def check(self, services: Services) -> write.NoteRequest:
        fields = dict(self.arguments)
        request_id = check_optional_key(fields.pop("request_id", None), "request_id")
        expires = write.compute_expiry(services.clock, fields.pop("expires_at", None), fields.pop("ttl", None))
        return write.NoteRequest(check_note(Note(**fields, expires_at=expires)), self.scope, request_id)


def remember_each(calls: Sequence[RememberCall], services: Services) -> list[str | Exception]:
    """Do several calls of `remember` in as few transactions as possible: the id or the error of each."""
    checked = [write.capture_error(call.check, services) for call in calls]
    answers = iter(write.commit_each([note for note in checked if not isinstance(note, Exception)], services))
    found = [note if isinstance(note, Exception) else next(answers) for note in checked]
    return [
        answer if isinstance(answer, Exception) else write.capture_error(require_id, answer.outcomes[0])
        for answer in found
    ]


def require_id(outcome: Outcome) -> str:
    """Return the id of a kept note; InvalidInput if a tombstone kept it out."""
    if outcome.id is None:
        raise InvalidInput("this text was forgotten here, and a derived note cannot bring it back.")
    return outcome.id


def _list_changed(item: Item) -> list[str]:
    """Return the items that this one ended, and the one that ended it."""
    own = item.metadata.get(RESERVED_KEY)
    ended = own.get(ENDS_KEY) if isinstance(own, Mapping) else None
    found = [id for id in ended if isinstance(id, str)] if isinstance(ended, list) else []
    return [*found, item.replaced_by] if item.replaced_by else found
