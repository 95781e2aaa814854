"""Remember, recall, look up, correct, forget: a few lines each."""

from __future__ import annotations

import builtins
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from engrain.core.clock import Time, check_time
from engrain.core.errors import BackendUnavailableWarning, EmbedderFailed, StoreError, StoreUnavailable
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, Relation
from engrain.core.model.plans import Change, Outcome
from engrain.core.model.recall import RECENT_HEADING, SESSION_HEADING, Degraded, Recall, RecallRequest, Section
from engrain.core.model.results import Explanation, ForgetResult
from engrain.core.model.sessions import Event
from engrain.core.validation import MAX_QUERY, check_count, check_share, check_text
from engrain.engine.parts import Parts
from engrain.ingest import write
from engrain.ports import ListQuery, SessionState
from engrain.ports.sessions import WINDOW
from engrain.retrieval.search import search
from engrain.tiers.semantic import SemanticMemory

_log = logging.getLogger("engrain")

MAX_HITS = 1_000
MAX_BUDGET = 10_000_000
RECENT_EPISODES = 3
SESSION_TOKENS = 2_000  # of working memory, at most, in an answer without a budget
LINE = 300  # characters of an episode that recall shows


class Knowledge(Parts):
    def remember(self, note: Note, request_id: str | None) -> str:
        return self.semantic.remember(note, request_id)

    def remember_many(
        self, notes: Iterable[object], request_id: str | None, progress: Callable[[int], None] | None
    ) -> list[Outcome]:
        return self.semantic.remember_many(notes, request_id, progress)

    def recall(self, request: RecallRequest) -> Recall:
        asked = self._checked(request)
        happened, without = self._lately(asked)
        found = search(replace(asked, context=self._context(asked, happened)), self.services)
        if self.services.feed is not None and (trouble := self.services.feed.trouble):
            without = (*without, Degraded("vector server", trouble))
        found = replace(found, without=without) if without else found
        shown = {hit.item.id for hit in found.hits}
        if shown:
            self.services.items.touch(self.scope, [hit.item.id for hit in found.hits])
        if any(one.item in shown for one in happened):
            # What was found is not told twice.
            fewer = [one for one in happened if one.item not in shown]
            found = replace(found, context=self._kept_context(found, fewer))
            found = replace(found, tokens=self.services.count_tokens(str(found)))
        return found

    def _lately(self, request: RecallRequest) -> tuple[builtins.list[Event], tuple[Degraded, ...]]:
        """What happened last, for a question about now and about everything."""
        if not _open_to_all(request) or self.services.episodes is None:
            return [], ()
        try:
            return self.episodic.recent(RECENT_EPISODES, self.session), ()
        except StoreUnavailable as exc:
            # Where they have a server of their own, everything else is there.
            if self.services.same_store:
                raise
            warnings.warn(
                f"engrain: {exc} Recall answers without the recent context.", BackendUnavailableWarning, stacklevel=2
            )
            return [], (Degraded("recent context", str(exc)),)

    def _context(self, request: RecallRequest, happened: builtins.list[Event]) -> tuple[Section, ...]:
        at_work = _open_to_all(request) and self.task_at_hand()
        room = SESSION_TOKENS if request.budget is None else min(SESSION_TOKENS, request.budget)
        session = [Section(SESSION_HEADING, tuple(self.working.context(room).splitlines()))] if at_work else []
        recent = [Section(RECENT_HEADING, tuple(map(_line, happened)))] if happened else []
        return (*session, *recent)

    def _kept_context(self, found: Recall, happened: builtins.list[Event]) -> tuple[Section, ...]:
        lines = {_line(one) for one in happened}
        fewer = [
            Section(one.title, tuple(line for line in one.lines if one.title != RECENT_HEADING or line in lines))
            for one in found.context
        ]
        return tuple(one for one in fewer if one.lines)

    def relate(self, relation: Relation, note: Note, request_id: str | None) -> str:
        return self.semantic.relate(relation, note, request_id)

    def about(self, entity: str, as_of: Time | None) -> list[Item]:
        return self.semantic.about(entity, as_of)

    def slot(self, name: str, as_of: Time | None) -> Item | None:
        return self.semantic.slot(name, as_of)

    def slots(self, prefix: str, as_of: Time | None) -> list[Item]:
        return self.semantic.slots(prefix, as_of)

    def get(self, id: str) -> Item | None:
        return self._holder(id).get(id)

    def list(self, where: Mapping[str, Any] | None, view: ListQuery) -> list[Item]:
        return self.semantic.list(where, view)

    def correct(self, id: str, note: Note, request_id: str | None) -> str:
        return self.semantic.correct(id, note, request_id)

    def change(self, change: Change, request_id: str | None) -> None:
        self.semantic.change(change, request_id)

    def forget(self, what: str | Mapping[str, Any], keep_source: bool, request_id: str | None) -> ForgetResult:
        forgotten = self.semantic.forget(what, keep_source, request_id)
        if (
            self.services.episodes is not None
            and not self.services.same_store
            and not self._episodes_removed(forgotten)
        ):
            forgotten = replace(forgotten, pending=True)
        if self.services.state is not None and forgotten and not self._window_dropped(self.services.state):
            forgotten = replace(forgotten, pending=True)
        if forgotten.marked:
            self._embed_marked(len(forgotten.marked))
        if forgotten and not self.feeder.brought(self.scope, {*forgotten.ids, *forgotten.marked}):
            forgotten = replace(forgotten, pending=True)
        return forgotten

    def _episodes_removed(self, forgotten: ForgetResult) -> bool:
        try:
            self.episodic.remove([*forgotten.ids, *forgotten.marked])
        except StoreError as exc:
            # The words are gone, and no entry shows without them; `maintain` removes what is left of it.
            _log.warning("the episodes of what was forgotten are still to be removed: %s", exc)
            return False
        return True

    def _window_dropped(self, state: SessionState) -> bool:
        try:
            state.clear(self.scope, WINDOW)
        except StoreError as exc:
            # None of it is shown any more; it goes within a day.
            _log.warning("messages that were cached are still to be removed: %s", exc)
            return False
        return True

    def _embed_marked(self, count: int) -> None:
        """What was cut has other words now, and needs other vectors; if that fails, the upkeep goes on trying."""
        try:
            write.embed_missing(self.services, count)
        except EmbedderFailed as exc:
            _log.warning("%d texts are without vectors for now: %s", count, exc)

    def why(self, id: str) -> Explanation:
        return self._holder(id).why(id)

    def _holder(self, id: str) -> SemanticMemory:
        """The memory that has the item: this one, or one of those that it reads."""
        others = (SemanticMemory(self.services, scope) for scope in self.reads)
        return next((one for one in (self.semantic, *others) if one.get(id)), self.semantic)

    def _checked(self, request: RecallRequest) -> RecallRequest:
        check_text(request.query, "query", MAX_QUERY)
        check_count(request.n, "n", 1, MAX_HITS)
        if request.budget is not None:
            check_count(request.budget, "budget", 0, MAX_BUDGET)
        if request.min_relevance is not None:
            check_share(request.min_relevance, "min_relevance")
        check_share(request.min_importance, "min_importance")
        return RecallRequest(
            query=request.query,
            scopes=(self.scope, *self.reads),
            n=request.n,
            budget=request.budget,
            at=None if request.at is None else check_time(request.at, "as_of", end_of_day=True),
            now=self.services.clock(),
            min_relevance=request.min_relevance,
            where=parse_filter(request.where),
            min_importance=request.min_importance,
            shown=request.shown,
        )


def _open_to_all(request: RecallRequest) -> bool:
    everything = request.at is None and request.where is None and request.min_importance <= 0
    return everything and request.shown is None


def _line(happened: Event) -> str:
    text = happened.text if len(happened.text) <= LINE else happened.text[: LINE - 1] + "…"
    return str(replace(happened, text=text))
