"""Procedural memory: named ways of doing things, their versions, and how each has turned out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.errors import ConfigError, NotFound
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, Source, check_note
from engrain.core.model.plans import Add, Plan
from engrain.core.model.procedures import (
    KEY,
    PROCEDURE_SLOT_PREFIX,
    Procedure,
    Tally,
    Trial,
    check_procedure_name,
    check_steps,
    item_to_procedure,
    number_versions,
    write_procedure,
)
from engrain.core.model.recall import RecallRequest
from engrain.core.validation import MAX_QUERY, check_count, check_key, check_text
from engrain.ingest import write
from engrain.ports import Outcomes, Services
from engrain.retrieval.search import search

MAX_FOUND = 100
CANDIDATES = 4  # for each one asked for: the best by meaning, of which the best by trial are chosen


class ProceduralMemory:
    """The procedures of one scope. A version is an item, its name a slot, its success what tasks reported."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def learn(
        self,
        name: str,
        steps: Sequence[str],
        *,
        when: str = "",
        importance: float = 0.6,
        source: str | Source | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a way of doing something; a changed one becomes the next version. Returns the version's id."""
        name, steps = check_procedure_name(name), check_steps(steps)
        when = check_text(when, "when") if when else ""
        note = check_note(Note(write_procedure(name, steps, when), importance, source=source))
        note = replace(note, slot=PROCEDURE_SLOT_PREFIX + name, metadata={KEY: {"steps": list(steps), "when": when}})
        began = self._services.items.moment()
        (draft,) = write.build_drafts([note], self._services)
        kept = {**draft.metadata[KEY], "version": self._number(name, draft.text)}
        request = None if request_id is None else check_key(request_id, "request_id")
        step = Add(replace(draft, kind="procedure", metadata={KEY: kept}))
        (outcome,) = self._services.items.apply(Plan(self._scope, (step,), request, began=began)).outcomes
        assert outcome.id is not None, "only what is derived is kept out"
        return outcome.id

    def get(self, name: str, version: int | None = None) -> Procedure | None:
        """The present version, or an earlier one by its number; None if there is none."""
        known = self.versions(name)
        if version is None:
            return next((one for one in reversed(known) if one.current), None)
        return next((one for one in known if one.version == check_count(version, "version")), None)

    def versions(self, name: str) -> list[Procedure]:
        """All versions, oldest first, each with its own record."""
        return self._procedures(self._history(check_procedure_name(name)))

    def best(self, name: str) -> Procedure | None:
        """The version that did better than the others, the newer of equals; None if there is none."""
        return max(self.versions(name), key=lambda one: (one.rate, one.version), default=None)

    def find(self, goal: str, n: int = 3) -> list[Procedure]:
        """What fits a goal, best first: of those that fit about equally well, the ones that have worked."""
        check_text(goal, "goal", MAX_QUERY)
        check_count(n, "n", 1, MAX_FOUND)
        where = parse_filter({"kind": "procedure"})
        wanted = n * CANDIDATES
        request = RecallRequest(goal, (self._scope,), wanted, now=self._services.clock(), where=where)
        hits = {hit.item.slot: hit for hit in search(request, self._services).hits}
        found = [self.get(str(slot).removeprefix(PROCEDURE_SLOT_PREFIX)) for slot in hits]
        fitting = [one for one in found if one]
        return sorted(fitting, key=lambda one: -hits[PROCEDURE_SLOT_PREFIX + one.name].relevance * (1 + one.rate))[:n]

    def names(self) -> list[str]:
        held = self._services.items.slots(self._scope, PROCEDURE_SLOT_PREFIX, None)
        return [str(item.slot).removeprefix(PROCEDURE_SLOT_PREFIX) for item in held]

    def trials(self, name: str, limit: int = 20) -> list[Trial]:
        """How the present version turned out, newest first, task by task."""
        return self._outcomes.trials(self._scope, self._known(name).id, check_count(limit, "limit"))

    def used(self, id: str, task: str, success: bool, note: str = "") -> bool:
        """Count how a task that used this version ended, once for each task. Called when a task ends."""
        told = self._services.redact(note) if self._services.redact and note else note
        return self._outcomes.count(self._scope, Trial(id, task, success, self._services.clock(), told))

    def _known(self, name: str) -> Procedure:
        found = self.get(name)
        if found is None:
            known = ", ".join(self.names()[:10]) or "none"
            raise NotFound(f"there is no procedure {name!r} in this memory. Known: {known}.")
        return found

    def _history(self, name: str) -> list[Item]:
        return [
            item
            for item in self._services.items.history(self._scope, PROCEDURE_SLOT_PREFIX + name)
            if item.kind == "procedure"
        ]

    def _procedures(self, items: Sequence[Item]) -> list[Procedure]:
        tallies = self._outcomes.tallies(self._scope, [item.id for item in items])
        numbers = zip(_numbers(items), items, strict=True)
        return [item_to_procedure(item, number, tallies.get(item.id, Tally())) for number, item in numbers]

    def _number(self, name: str, text: str) -> int:
        """Of the version that this text is: the present one's if it says the same, else the next."""
        known = self._history(name)
        numbers = _numbers(known)
        same = [number for number, item in zip(numbers, known, strict=True) if item.open and item.text == text]
        return same[0] if same else max(numbers, default=0) + 1

    @property
    def _outcomes(self) -> Outcomes:
        if self._services.outcomes is None:
            raise ConfigError("this deployment has no store for procedures. Use a SQLite file or Postgres.")
        return self._services.outcomes


def _numbers(items: Sequence[Item]) -> list[int]:
    return number_versions(item.metadata[KEY].get("version") for item in items)
