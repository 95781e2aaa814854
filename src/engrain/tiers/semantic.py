"""Semantic memory: facts, preferences, knowledge and relations, kept until forgotten."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

from engrain.core.clock import Time, check_time
from engrain.core.errors import InvalidInput, NotFound, StoreError, TooLarge
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, Relation, SessionPosition, Source, check_note, parse_note
from engrain.core.model.plans import Change, Correct, Forget, Outcome, Plan
from engrain.core.model.results import Explanation, ForgetResult
from engrain.core.model.retention import remaining_importance
from engrain.core.validation import MAX_BATCH, check_count, check_key, check_name, check_share
from engrain.ingest import write
from engrain.ports import ListQuery, Services

_log = logging.getLogger("engrain")

# One transaction of a bulk forget: large enough to be quick, small enough that other writers get their turn.
FORGET_BATCH = 500


class SemanticMemory:
    """The knowledge of one scope."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def remember(self, note: Note, request_id: str | None = None) -> str:
        return _id(
            write.commit_notes([check_note(note)], self._scope, self._services, _request(request_id)).outcomes[0]
        )

    def learn(self, content: str, importance: float = 0.5, source: str = "conversation") -> str:
        """Keep what the agent found out by itself: it is the agent's word, wherever it has it from."""
        return self.remember(Note(content, importance, source=Source(source, "agent")))

    def remember_many(
        self, notes: Iterable[object], request_id: str | None, progress: Callable[[int], None] | None
    ) -> list[Outcome]:
        if isinstance(notes, (str, bytes, Mapping)):
            raise InvalidInput("remember_many takes a list of notes; for one text use remember.")
        proved = [check_note(parse_note(note)) for note in islice(notes, MAX_BATCH + 1)]
        if len(proved) > MAX_BATCH:
            raise TooLarge(f"more than {MAX_BATCH:,} notes in one call; hand them over in parts.")
        return write.commit_batches(proved, self._scope, self._services, _request(request_id), progress or _silent)

    def relate(self, relation: Relation, note: Note, request_id: str | None = None) -> str:
        text = f"{relation.subject} {relation.relation} {relation.object}"
        return self.remember(
            Note(text, note.importance, metadata=note.metadata, source=note.source, relation=relation), request_id
        )

    def about(self, entity: str, as_of: Time | None) -> list[Item]:
        return self._services.items.about(self._scope, check_key(entity, "entity"), _moment(as_of))

    def slot(self, name: str, as_of: Time | None) -> Item | None:
        return self._services.items.slot(self._scope, check_key(name, "slot"), _moment(as_of))

    def slots(self, prefix: str, as_of: Time | None) -> list[Item]:
        found = self._services.items.slots(self._scope, check_name(prefix, "slot prefix"), _moment(as_of))
        return [item for item in found if item.kind not in ("procedure", "summary")]

    def get(self, id: str) -> Item | None:
        return next(iter(self._services.items.get_many(self._scope, [check_key(id, "id")])), None)

    def list(self, query: Mapping[str, Any] | None, view: ListQuery) -> list[Item]:
        check_count(view.limit, "limit", 1, MAX_BATCH)
        if view.after is not None:
            check_key(view.after, "after")
        at, where = _moment(view.at), parse_filter(query)
        return self._services.items.page(ListQuery(self._scope, where, at, view.history, view.limit, view.after))

    def correct(self, id: str, note: Note, request_id: str | None) -> str:
        """The new version keeps what the old one had; only the words were wrong."""
        old = self._standing(id)
        if old.relation:
            raise InvalidInput(f"{id!r} is a relation: forget it, and relate what is right.")
        place = SessionPosition(old.session, None, old.speaker, old.role) if old.session else None
        note = check_note(replace(note, importance=old.importance, metadata=old.metadata, slot=old.slot, place=place))
        (draft,) = write.build_drafts([note], self._services)
        applied = self._services.items.apply(Plan(self._scope, (Correct(old.id, draft),), _request(request_id)))
        return _id(applied.outcomes[0])

    def change(self, change: Change, request_id: str | None) -> None:
        if change.importance is not None:
            check_share(change.importance, "importance")
        if change.pinned is not None and not isinstance(change.pinned, bool):
            raise InvalidInput(f"pinned must be True or False, not {change.pinned!r}.")
        self._standing(change.id)
        self._services.items.apply(Plan(self._scope, (change,), _request(request_id)))

    def forget(self, what: str | Mapping[str, Any], keep_source: bool, request_id: str | None) -> ForgetResult:
        if isinstance(what, str):
            step = Forget(check_key(what, "id"), keep_source)
            outcomes = self._services.items.apply(Plan(self._scope, (step,), _request(request_id))).outcomes
            if outcomes[0].status == "missing":
                raise self._unknown(what)
        else:
            # To repeat it is harmless: what matched is gone.
            outcomes = self._forget_all(self._matching(what), keep_source)
        return _forgotten(outcomes, bool(outcomes) and not self._purged())

    def _forget_all(self, ids: Sequence[str], keep_source: bool) -> tuple[Outcome, ...]:
        outcomes: tuple[Outcome, ...] = ()
        for start in range(0, len(ids), FORGET_BATCH):
            steps = tuple(Forget(one, keep_source) for one in ids[start : start + FORGET_BATCH])
            outcomes += self._services.items.apply(Plan(self._scope, steps)).outcomes
        return outcomes

    def why(self, id: str) -> Explanation:
        item = self._known(id)
        links = self._services.items.lineage(self._scope, [item.id])
        cites = [link.cite.item for link in links if link.item == item.id]
        children = [link.item for link in links if link.cite.item == item.id]
        items = self._services.items
        versions = items.history(self._scope, item.slot) if item.slot else items.corrected(self._scope, item.id)
        fetch = self._services.items.get_many
        cited, citing = tuple(fetch(self._scope, cites)), tuple(fetch(self._scope, children))
        return Explanation(item, cited, citing, tuple(versions), self._left(item))

    def _left(self, item: Item) -> float | None:
        half_life = self._services.policies.half_life_days
        return remaining_importance(item, self._services.clock(), half_life) if half_life else None

    def _purged(self) -> bool:
        try:
            return self._services.items.purge()
        except StoreError as exc:
            # What was asked for is done: the rest is tried again by itself, and must not look like a failure.
            _log.warning("the bytes of what was forgotten are still to be removed: %s", exc)
            return False

    def _standing(self, id: str) -> Item:
        item = self._known(id)
        if item.retracted_at:
            raise NotFound(f"{id!r} was corrected: {item.replaced_by!r} stands in its place. Use that id.")
        return item

    def _known(self, id: str) -> Item:
        item = self.get(id)
        if item is None:
            raise self._unknown(id)
        return item

    def _unknown(self, id: str) -> NotFound:
        return NotFound(f"there is no item {id!r} in this memory ({self._scope}). List its items to see what is.")

    def _matching(self, what: object) -> builtins.list[str]:
        where = parse_filter(what) if isinstance(what, Mapping) else None
        if where is None:
            raise InvalidInput('forget takes an id or a filter such as {"source": "page"}; an empty one is refused.')
        found: builtins.list[str] = []
        while True:
            after = found[-1] if found else None
            page = self._services.items.page(ListQuery(self._scope, where, history=True, limit=1000, after=after))
            found += [item.id for item in page]
            if len(page) < 1000:
                return found


def _forgotten(outcomes: Sequence[Outcome], pending: bool) -> ForgetResult:
    removed = [id for one in outcomes if one.status == "forgotten" for id in (one.id, *one.others) if id]
    marked = [id for one in outcomes for id in one.marked]
    return ForgetResult(tuple(dict.fromkeys(removed)), tuple(dict.fromkeys(marked)), pending)


def _id(outcome: Outcome) -> str:
    if outcome.id is None:
        raise InvalidInput("this text was forgotten here, and a derived note cannot bring it back.")
    return outcome.id


def _request(request_id: str | None) -> str | None:
    return None if request_id is None else check_key(request_id, "request_id")


def _moment(as_of: Time | None) -> datetime | None:
    return None if as_of is None else check_time(as_of, "as_of", end_of_day=True)


def _silent(_: int) -> None:
    return None
