"""Semantic memory: facts, preferences, knowledge and relations, kept until forgotten."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from engrain.core.clock import Time
from engrain.core.errors import EmbedderFailed, InvalidInput, NotFound, StoreError, TooLarge
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, SessionPosition, Source, check_note, parse_note
from engrain.core.model.plans import Change, Correct, Forget, Outcome, Plan
from engrain.core.model.results import Explanation, ForgetResult
from engrain.core.model.retention import remaining_importance
from engrain.core.progress import Progress, count_progress
from engrain.core.validation import MAX_BATCH, check_count, check_key, check_metadata, check_share
from engrain.ingest import write
from engrain.maintenance.vector_sync import push_changes
from engrain.ports import ListQuery, Services
from engrain.tiers.slots import moment_of

if TYPE_CHECKING:
    from engrain.maintenance.consolidate import ConsolidationResult

_log = logging.getLogger("engrain")

# One transaction of a bulk forget: large enough to be quick, small enough that other writers get their turn.
FORGET_BATCH = 500


class SemanticMemory:
    """The knowledge of one scope."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def remember(self, note: Note, request_id: str | None = None) -> str:
        """Keep a note word for word, and return its id."""
        return _id(
            write.commit_notes([check_note(note)], self._scope, self._services, _request(request_id)).outcomes[0]
        )

    def learn(self, content: str, importance: float = 0.5, source: str = "conversation") -> str:
        """Keep what the agent found out by itself: it is the agent's word, wherever it has it from."""
        return self.remember(Note(content, importance, source=Source(source, "agent")))

    def remember_many(
        self, notes: Iterable[object], request_id: str | None = None, progress: Progress | None = None
    ) -> list[Outcome]:
        """Keep many notes, in transactions of a few hundred."""
        if isinstance(notes, (str, bytes, Mapping)):
            raise InvalidInput("remember_many takes a list of notes; for one text use remember.")
        proved = [check_note(parse_note(note)) for note in islice(notes, MAX_BATCH + 1)]
        if len(proved) > MAX_BATCH:
            raise TooLarge(f"more than {MAX_BATCH:,} notes in one call; hand them over in parts.")
        done = count_progress(progress, "notes", len(proved))
        return write.commit_batches(proved, self._scope, self._services, _request(request_id), done)

    def consolidate(self, *, dry_run: bool = False) -> ConsolidationResult:
        """Remove knowledge that matters little and was rarely used; never what is pinned, cited or young."""
        from engrain.maintenance.consolidate import consolidate

        return consolidate(self._services, self._scope, dry_run=dry_run)

    def get(self, id: str) -> Item | None:
        """The item of this id, in whatever version; None if there is none."""
        return next(iter(self._services.items.get_many(self._scope, [check_key(id, "id")])), None)

    def change_number(self) -> int:
        """The store's last change: what a later write may give as the moment that it began at."""
        return self._services.items.moment()

    def all_valid(self, ids: Sequence[str]) -> bool:
        """Whether none of these items was replaced, corrected, forgotten or expired."""
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
        """Items that match a filter, newest first."""
        check_count(limit, "limit", 1, MAX_BATCH)
        if after is not None:
            check_key(after, "after")
        query = ListQuery(self._scope, parse_filter(where), moment_of(as_of), history, limit, after)
        return self._services.items.page(query)

    def correct(self, id: str, note: Note, request_id: str | None = None) -> str:
        """The new version keeps what the old one had; only the words were wrong."""
        old = self._standing(id)
        if old.relation:
            raise InvalidInput(f"{id!r} is a relation: forget it, and add what is right.")
        place = SessionPosition(old.session, None, old.speaker, old.role) if old.session else None
        note = check_note(replace(note, importance=old.importance, metadata=old.metadata, slot=old.slot, place=place))
        (draft,) = write.build_drafts([note], self._services)
        applied = self._services.items.apply(Plan(self._scope, (Correct(old.id, draft),), _request(request_id)))
        return _id(applied.outcomes[0])

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
        self._standing(change.id)
        self._services.items.apply(Plan(self._scope, (change,), _request(request_id)))

    def forget(
        self, what: str | Mapping[str, Any], *, keep_source: bool = False, request_id: str | None = None
    ) -> ForgetResult:
        """Remove an item, or all that match a filter, with everything derived from it, from every store."""
        if isinstance(what, str):
            step = Forget(check_key(what, "id"), keep_source)
            outcomes = self._services.items.apply(Plan(self._scope, (step,), _request(request_id))).outcomes
            if outcomes[0].status == "missing":
                raise self._unknown(what)
        else:
            # To repeat it is harmless: what matched is gone.
            outcomes = self._forget_all(self._matching(what), keep_source)
        done = _forgotten(outcomes, bool(outcomes) and not self._purged())
        return replace(done, pending=True) if done and not self._removed_elsewhere(done) else done

    def _removed_elsewhere(self, done: ForgetResult) -> bool:
        """Whether the other stores and the vector server let go of it too."""
        services = self._services
        gone = [*done.ids, *done.marked]
        clean = True
        if services.episodes is not None and not services.same_store:
            clean &= self._tried("episodes", lambda: services.episodes.remove(self._scope, gone))  # type: ignore[union-attr]
        if done.marked:
            self._embed_marked(len(done.marked))
        return push_changes(services.feed, self._scope, gone) and clean

    def _tried(self, what: str, remove: Callable[[], object]) -> bool:
        try:
            remove()
        except StoreError as exc:
            # The words are gone, and nothing shows without them; `maintain` or expiry removes what is left.
            _log.warning("%s of what was forgotten are still to be removed: %s", what, exc)
            return False
        return True

    def _embed_marked(self, count: int) -> None:
        """A message with a span cut out has other words, and needs another vector."""
        try:
            write.embed_missing(self._services, count)
        except EmbedderFailed as exc:
            _log.warning("%d texts are without vectors for now: %s", count, exc)

    def _forget_all(self, ids: Sequence[str], keep_source: bool) -> tuple[Outcome, ...]:
        outcomes: tuple[Outcome, ...] = ()
        for start in range(0, len(ids), FORGET_BATCH):
            steps = tuple(Forget(one, keep_source) for one in ids[start : start + FORGET_BATCH])
            outcomes += self._services.items.apply(Plan(self._scope, steps)).outcomes
        return outcomes

    def explain(self, id: str) -> Explanation:
        """Where an item came from, what it rests on, and what it led to."""
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
