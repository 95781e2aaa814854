"""Everything that a store shows of a scope, with labels for ids, so that two stores can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import ListQuery, SketchQuery, VectorQuery, WordMatches, WordQuery
from engrain.core.model.sessions import Episode
from engrain.core.text.tokenizer import extract_terms
from engrain_conformance.clock import START
from engrain_conformance.drafts import EMBEDDER, MODEL

Label = Callable[[str | None], str | None]

SLOTS = ("city", "drink")
SESSIONS = ("monday", "tuesday")
ENTITIES = ("Ana", "tea")
QUESTIONS = ("Ana lives in Lima", "tea or coffee")
TARGET = "index"
NAMES = ("~a", "~b")  # after every id that a store gives
WORKS = ("extract", "summarise")
MOMENTS = (START - timedelta(hours=2), START, START + timedelta(seconds=61))
FACTS = parse_filter({"kind": "fact"})


def label_item(item: Item, label: Label) -> Item:
    sources = tuple(
        replace(source, cites=tuple(replace(cite, item=label(cite.item) or "") for cite in source.cites))
        for source in item.sources
    )
    return replace(item, id=label(item.id) or "", replaced_by=label(item.replaced_by), sources=sources)


def label_episode(episode: Episode, label: Label) -> Episode:
    id = episode.id if episode.id in NAMES else label(episode.id)
    return replace(episode, id=id or "", item=label(episode.item))


class View:
    """The contents of one scope of one store at one moment."""

    def __init__(self, store: Any, scope: Scope, at: datetime | None, label: Label) -> None:
        self.store, self.scope, self.at, self.label = store, scope, at, label
        self.ids = [item.id for item in store.page(ListQuery(scope, history=True, limit=10_000))]

    def everything(self) -> dict[str, Any]:
        return {**self.items(), **self.edges(), **self.log(), **self.happened(), **self.near(), **self.words()}

    def items(self) -> dict[str, Any]:
        store, scope, at = self.store, self.scope, self.at
        return {
            "history": self._shown(store.page(ListQuery(scope, history=True, limit=10_000))),
            "get_many": self._shown(store.get_many(scope, self.ids)),
            "page": self._shown(store.page(ListQuery(scope, limit=10_000))),
            "page at": self._shown(store.page(ListQuery(scope, at=at, limit=10_000))),
            "second page": self._shown(
                store.page(ListQuery(scope, limit=2, after=self.ids[1])) if self.ids[2:] else []
            ),
            "slots": self._shown(store.slots(scope, "", None)),
            "slots at": self._shown(store.slots(scope, "", at)),
            "slot": [
                self._shown([version] if version else []) for version in (store.slot(scope, slot, at) for slot in SLOTS)
            ],
            "versions": [self._shown(store.history(scope, slot)) for slot in SLOTS],
            "about": [self._shown(store.about(scope, entity, None)) for entity in ENTITIES],
            "having": [self.label(id) for id in store.having(scope, 7, None, 99, None)],
            "having facts": [self.label(id) for id in store.having(scope, 7, FACTS, 2, at)],
        }

    def edges(self) -> dict[str, Any]:
        store, label = self.store, self.label
        lineage = {
            (label(citation.item), label(citation.cite.item), citation.cite.start, citation.cite.end)
            for citation in self._lineage()
        }
        sketches = store.sketches(SketchQuery(self.scope, self.ids[::3], 1, at=self.at))
        return {
            "lineage": lineage,
            "outdated": sorted(
                (label(span.id), *span[1:4], span.now or "") for span in store.outdated(self.scope, self.ids)
            ),
            "speakers": store.speakers(self.scope),
            "sketches": {sketche._replace(id=label(sketche.id)) for sketche in sketches},
            "unembedded": [
                (label(pending.id), pending.text, pending.kind)
                for pending in store.unembedded(MODEL, 10_000)
                if pending.scope == self.scope
            ],
        }

    def log(self) -> dict[str, Any]:
        store, scope = self.store, self.scope
        return {
            "sessions": store.sessions(scope, 99),
            "lengths": [store.length(scope, session) for session in SESSIONS],
            "read": [self._shown(store.read(scope, session, 1, 5)) for session in SESSIONS],
            "last": [self._shown(store.last(scope, session, 2)) for session in SESSIONS],
            "summaries": [store.summary(scope, session) for session in SESSIONS],
        }

    def happened(self) -> dict[str, Any]:
        store, scope, label = self.store, self.scope, self.label
        everything = store.episodes.recent(scope, None, 99, MOMENTS[0])
        recent = (store.episodes.recent(scope, session, 3, MOMENTS[2]) for session in (None, *SESSIONS))
        raws = [[store.episodes.raw(scope, item.id, at) for at in MOMENTS] for item in everything]
        tallies = store.outcomes.tallies(scope, [*self.ids, "nothing"])
        return {
            "episodes": [label_episode(item, label) for item in everything],
            "recent": [[label_episode(item, label) for item in some] for some in recent],
            "raw": raws,
            "tallies": {label(id): tally for id, tally in tallies.items()},
            "trials": {label(id): self._trials(id) for id in tallies},
            "progress": [store.progress(scope, session, work) for session in SESSIONS for work in WORKS],
            "behind": [store.behind(scope, work, 3) for work in WORKS],
        }

    def near(self) -> dict[str, Any]:
        """Cosines to four digits, in no order: which of two almost equal ones comes first is rounding."""
        found: dict[str, Any] = {}
        for question in QUESTIONS:
            query = VectorQuery(EMBEDDER.embed([question], "query")[0], MODEL, self.scope, at=self.at, limit=10_000)
            nearest = self.store.nearest(query)
            given = self.store.cosines(query, self.ids)
            found[f"nearest {question}"] = {
                self.label(id): round(cosine, 4) + 0.0 for id, cosine in zip(nearest.ids, nearest.cosines, strict=True)
            }
            found[f"cosines {question}"] = {
                self.label(id): round(cosine, 4) + 0.0
                for id, cosine in zip(self.ids, given, strict=True)
                if cosine == cosine
            }
            few = self.store.nearest(replace(query, where=FACTS, limit=2))
            found[f"nearest facts {question}"] = [round(cosine, 4) + 0.0 for cosine in few.cosines]
            assert nearest.cosines == sorted(nearest.cosines, reverse=True)
        return found

    def words(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for question in QUESTIONS:
            query = WordQuery(tuple(dict.fromkeys(extract_terms(question))), self.scope, at=self.at, limit=10_000)
            found[f"best {question}"] = self._matches(self.store.best(query))
            few = self.store.best(replace(query, where=FACTS, limit=2))
            found[f"best facts {question}"] = [hit[1:] for hit in few.hits], few.passages, few.frequency
            found[f"counts {question}"] = self._matches(self.store.counts(query, self.ids[::2]))
        return found

    def _matches(self, found: WordMatches) -> Any:
        hits = {self.label(hit.id): hit[1:] for hit in found.hits}
        return hits, found.passages, round(found.average, 6), found.frequency

    def _shown(self, items: list[Item]) -> list[Item]:
        return [label_item(item, self.label) for item in items]

    def _trials(self, id: str) -> list[Trial]:
        return [replace(trial, procedure="") for trial in self.store.outcomes.trials(self.scope, id, 9)]

    def _lineage(self) -> list[Any]:
        found = self.store.lineage(self.scope, self.ids)
        assert len(found) == len(set(found))
        return list(found)
