"""Procedural memory: named procedures, their versions, and the success of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.errors import ConfigError, NotFound
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import (
    PROCEDURE_SLOT_PREFIX,
    PROPOSED_SLOT_PREFIX,
    RESERVED_KEY,
    TRUST,
    Item,
    Note,
    Source,
    check_note,
)
from engrain.core.model.plans import Add, Applied, Plan, make_request
from engrain.core.model.procedures import (
    Procedure,
    Tally,
    Trial,
    check_procedure_name,
    check_steps,
    item_to_procedure,
    number_versions,
    read_version,
    write_procedure,
)
from engrain.core.model.recall import RecallRequest
from engrain.core.validation import MAX_QUERY, check_count, check_optional_key, check_text
from engrain.ingest import write
from engrain.ports import Services
from engrain.ports.sessions import Outcomes
from engrain.retrieval.search import search

MAX_FOUND = 100
CANDIDATES_PER_RESULT = 4  # the best by meaning, from which the most successful are chosen


class ProceduralMemory:
    """The procedures of one scope. A version is an item in the slot of its name; tasks report its success."""

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
        """Keep a procedure and return the version's id. Changed steps make a new version.

        Steps from a tool, a page or a file are only kept as a proposal, which recall finds. They become the current
        version when they are learnt again from a trusted source.
        """
        name, steps = check_procedure_name(name), check_steps(steps)
        when = check_text(when, "when") if when else ""
        note = check_note(Note(write_procedure(name, steps, when), importance, source=source))
        details: dict[str, object] = {"steps": list(steps), "when": when}
        trusted = isinstance(note.source, Source) and note.source.trust >= TRUST["agent"]
        prefix = PROCEDURE_SLOT_PREFIX if trusted else PROPOSED_SLOT_PREFIX
        note = replace(note, slot=prefix + name, metadata={RESERVED_KEY: details})
        began = self._services.items.current_time()
        (draft,) = write.build_drafts([note], self._services)
        details = {**draft.metadata[RESERVED_KEY], "version": self._choose_number(name, draft.text)}
        request_id = check_optional_key(request_id, "request_id")
        step = Add(replace(draft, kind="procedure", metadata={RESERVED_KEY: details}))
        (outcome,) = self._services.items.apply(Plan(self._scope, (step,), request_id, began=began)).outcomes
        assert outcome.id is not None, "only derived items are rejected"
        return outcome.id

    def get(self, name: str, version: int | None = None) -> Procedure | None:
        """Return the current version, or an earlier one by its number; None if there is none."""
        known = self.versions(name)
        if version is None:
            return next((procedure for procedure in reversed(known) if procedure.current), None)
        return next((procedure for procedure in known if procedure.version == check_count(version, "version")), None)

    def require(self, name: str) -> Procedure:
        """Return the current version; NotFound if there is none."""
        found = self.get(name)
        if found is None:
            known = ", ".join(self.names()[:10]) or "none"
            raise NotFound(f"there is no procedure {name!r} in this memory. Known: {known}.")
        return found

    def versions(self, name: str) -> list[Procedure]:
        """Return all versions, oldest first, each with its own success."""
        items = self._list_items(check_procedure_name(name))
        tallies = self._outcomes.tallies(self._scope, [item.id for item in items])
        numbered = zip(_list_numbers(items), items, strict=True)
        return [item_to_procedure(item, number, tallies.get(item.id, Tally())) for number, item in numbered]

    def best(self, name: str) -> Procedure | None:
        """Return the most successful version, the newer of equals; None if there is none."""
        return max(self.versions(name), key=lambda procedure: (procedure.rate, procedure.version), default=None)

    def find(self, goal: str, n: int = 3) -> list[Procedure]:
        """Return the procedures that fit a goal, best first. Of similar ones, the more successful comes first."""
        check_text(goal, "goal", MAX_QUERY)
        check_count(n, "n", 1, MAX_FOUND)
        where = parse_filter({"kind": "procedure"})
        limit = n * CANDIDATES_PER_RESULT
        request = RecallRequest(goal, (self._scope,), limit, now=self._services.clock(), where=where)
        hits = {hit.item.slot: hit for hit in search(request, self._services).hits}
        found = [self.get(str(slot).removeprefix(PROCEDURE_SLOT_PREFIX)) for slot in hits]
        fitting = [procedure for procedure in found if procedure]
        return sorted(
            fitting,
            key=lambda procedure: -hits[PROCEDURE_SLOT_PREFIX + procedure.name].relevance * (1 + procedure.rate),
        )[:n]

    def names(self) -> list[str]:
        items = self._services.items.slots(self._scope, PROCEDURE_SLOT_PREFIX, None)
        return [str(item.slot).removeprefix(PROCEDURE_SLOT_PREFIX) for item in items]

    def trials(self, name: str, limit: int = 20) -> list[Trial]:
        """Return the outcomes of the current version, newest first, one for each task."""
        return self._outcomes.trials(self._scope, self.require(name).id, check_count(limit, "limit"))

    def used(self, id: str, task: str, success: bool, note: str = "", *, request_id: str | None = None) -> bool:
        """Count the outcome of a task that used this version, once for each task.

        Success counts only for a durable task: NotFound if the journal does not know it.
        """
        journal = self._services.journal
        if success and (journal is None or journal.task(self._scope, task) is None):
            raise NotFound(
                f"there is no task {task!r} in the journal, so its success does not count. "
                f"Run it as a durable task: with memory.task({task!r}) as run: …"
            )
        return self.count_trial(id, task, success, note, request_id)

    def count_trial(self, id: str, task: str, success: bool, note: str = "", request_id: str | None = None) -> bool:
        """Internal: count an outcome that the library saw itself, once for each task."""
        note = self._services.redact(note) if self._services.redact and note else note
        trial = Trial(id, task, success, self._services.clock(), note)
        count, scope, request = self._outcomes.count, self._scope, make_request(request_id, "used", id, task, success)
        if request is None:
            return count(scope, trial)
        return bool(self._services.items.once(scope, request, lambda: Applied(value=count(scope, trial))).value)

    def _list_items(self, name: str) -> list[Item]:
        found = self._services.items.history(self._scope, PROCEDURE_SLOT_PREFIX + name)
        return [item for item in found if item.kind == "procedure"]

    def _choose_number(self, name: str, text: str) -> int:
        """Return the current version's number if its text is the same, else the next number."""
        known = self._list_items(name)
        numbers = _list_numbers(known)
        same = [number for number, item in zip(numbers, known, strict=True) if item.open and item.text == text]
        return same[0] if same else max(numbers, default=0) + 1

    @property
    def _outcomes(self) -> Outcomes:
        if self._services.outcomes is None:
            raise ConfigError("this deployment has no store for procedures. Use a SQLite file or Postgres.")
        return self._services.outcomes


def _list_numbers(items: Sequence[Item]) -> list[int]:
    return number_versions(read_version(item)[2] for item in items)
