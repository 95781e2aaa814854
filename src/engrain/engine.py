"""The verbs, given a kit of ports and a scope: a few lines each, no SQL, no prompts."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from engrain.capture import write
from engrain.core.answers import Forgotten, Status, Why
from engrain.core.clock import Time, checked_time
from engrain.core.errors import EmbedderFailed, EngrainError
from engrain.core.filters import parse_filter
from engrain.core.items import Item, Relation
from engrain.core.notes import Note
from engrain.core.plans import Change, Outcome
from engrain.core.recalled import Recall, RecallRequest
from engrain.core.scope import Scope
from engrain.core.text import MAX_QUERY, checked_count, checked_share, checked_text
from engrain.lifecycle.upkeep import Upkeep, WatchedEmbedder
from engrain.ports import Finding, Kit, ListQuery
from engrain.recall.search import search
from engrain.tasks.care import Tasks
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.semantic import SemanticMemory

_log = logging.getLogger("engrain")

MAX_HITS = 1_000
MAX_BUDGET = 10_000_000


class Engine:
    """One scope's memory. `reads` are other scopes that recall looks into and nothing here writes to."""

    def __init__(self, kit: Kit, scope: Scope, reads: Sequence[Scope] = (), background: bool = False) -> None:
        self.upkeep = Upkeep(kit, background)
        self.kit = replace(kit, embedder=WatchedEmbedder(kit.embedder, self.upkeep.wake))
        self.scope = scope
        self.reads = tuple(reads)
        self.semantic = SemanticMemory(self.kit, scope)
        self.procedural = ProceduralMemory(self.kit, scope)
        self.tasks = Tasks(self.kit, scope)
        self.upkeep.start()

    def remember(self, note: Note, request_id: str | None) -> str:
        return self.semantic.remember(note, request_id)

    def remember_many(
        self, notes: Iterable[object], request_id: str | None, progress: Callable[[int], None] | None
    ) -> list[Outcome]:
        return self.semantic.remember_many(notes, request_id, progress)

    def recall(self, request: RecallRequest) -> Recall:
        found = search(self._checked(request), self.kit)
        if found.hits:
            self.kit.items.touch(self.scope, [hit.item.id for hit in found.hits])
        return found

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

    def forget(self, what: str | Mapping[str, Any], keep_source: bool, request_id: str | None) -> Forgotten:
        forgotten = self.semantic.forget(what, keep_source, request_id)
        if forgotten.marked:
            self._embed_marked(len(forgotten.marked))
        return forgotten

    def _embed_marked(self, count: int) -> None:
        """What was cut has other words now, and needs other vectors; if that fails, the upkeep goes on trying."""
        try:
            write.embed_missing(self.kit, count)
        except EmbedderFailed as exc:
            _log.warning("%d texts are without vectors for now: %s", count, exc)

    def why(self, id: str) -> Why:
        return self._holder(id).why(id)

    def status(self) -> Status:
        model = self.kit.embedder.model
        store = self.kit.items.status(model.key)
        items = self.kit.items.count(ListQuery(self.scope))
        return Status(str(self.scope), items, asdict(store), asdict(model), self.upkeep.state())

    def check(self) -> builtins.list[Finding]:
        return [*self.kit.items.check(), self._embedder_check()]

    def rebuild(self, progress: Callable[[int], None]) -> int:
        """Every index made anew from the record store: the words at once, the vectors as far as they are missing."""
        seen = self.kit.items.rebuild()
        while made := write.embed_missing(self.kit, write.BATCH):
            progress(made)
        return seen

    def close(self) -> None:
        self.upkeep.stop()
        self.kit.items.close()

    def _holder(self, id: str) -> SemanticMemory:
        """The memory that has the item: this one, or one of those that it reads."""
        others = (SemanticMemory(self.kit, scope) for scope in self.reads)
        return next((one for one in (self.semantic, *others) if one.get(id)), self.semantic)

    def _checked(self, request: RecallRequest) -> RecallRequest:
        checked_text(request.query, "query", MAX_QUERY)
        checked_count(request.n, "n", 1, MAX_HITS)
        if request.budget is not None:
            checked_count(request.budget, "budget", 0, MAX_BUDGET)
        if request.min_relevance is not None:
            checked_share(request.min_relevance, "min_relevance")
        checked_share(request.min_importance, "min_importance")
        return RecallRequest(
            query=request.query,
            scopes=(self.scope, *self.reads),
            n=request.n,
            budget=request.budget,
            at=None if request.at is None else checked_time(request.at, "as_of", end_of_day=True),
            now=self.kit.clock(),
            min_relevance=request.min_relevance,
            where=parse_filter(request.where),
            min_importance=request.min_importance,
        )

    def _embedder_check(self) -> Finding:
        try:
            model = self.kit.embedder.model
            row = self.kit.embedder.embed(["engrain"], "document")
        except EngrainError as exc:
            return Finding("embedder", "fail", str(exc), "Check the embedder setting; words find everything meanwhile.")
        if row.shape == (1, model.dimension):
            return Finding("embedder", "pass", f"{model.name} answers with {model.dimension} dimensions.")
        return Finding(
            "embedder", "fail", f"{model.name} answers with shape {row.shape}.", "Check the embedder setting."
        )
