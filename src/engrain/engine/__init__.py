"""The verbs, given a services of ports and a scope: a few lines each, no SQL, no prompts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from engrain.core.formats.manifests import BackupInfo
from engrain.core.identity import Scope
from engrain.core.model.messages import message_to_note
from engrain.core.model.recall import SESSION_HEADING, RecallRequest, Section, escape_text, quote_lines
from engrain.core.model.results import CheckResult, MemoryInfo, Status
from engrain.core.validation import check_text
from engrain.engine.counting import held, under_way
from engrain.engine.erasures import Erasures
from engrain.engine.happenings import Happenings
from engrain.engine.knowledge import SESSION_TOKENS, Knowledge
from engrain.engine.portable import Portable
from engrain.ingest import write
from engrain.maintenance.backups import back_up
from engrain.maintenance.consolidate import ConsolidationResult, consolidate
from engrain.maintenance.maintain import MaintenanceReport, Watch, maintain, memories
from engrain.maintenance.scheduler import MaintenanceScheduler
from engrain.maintenance.vector_sync import BATCH
from engrain.ports import ListQuery, Services

HISTORY = "Conversation so far"
METERED = ("calls", "failures", "tokens_in", "tokens_out", "last_error", "pending")


class Engine(Happenings, Knowledge, Erasures, Portable):
    """One scope's memory: its tiers, and what is true of all of them."""

    def __init__(self, services: Services, scope: Scope, reads: Sequence[Scope] = (), background: bool = False) -> None:
        super().__init__(services, scope, reads, background)
        self.keeper = MaintenanceScheduler(self.services, background, self._cared_for, self.enricher.catch_up)
        self.keeper.start()

    def status(self) -> Status:
        model = self.services.embedder.model
        store = self.services.items.status(model.key)
        items = self.services.items.count(ListQuery(self.scope))
        holds = held(self.services, self.scope)
        beside = self._beside()
        hold = next(iter(self.holds(self.scope.user)), None) if self.services.erasing and self.scope.user else None
        return Status(str(self.scope), items, asdict(store), asdict(model), beside, self._model_use(), holds, hold)

    def memories(self) -> list[MemoryInfo]:
        count = self.services.items.count
        return [MemoryInfo(one.tenant, one.agent, one.user, count(ListQuery(one))) for one in memories(self.services)]

    def _beside(self) -> dict[str, object]:
        """How the work in the background stands."""
        return {
            **self.upkeep.state(),
            "changing": self._changing(),
            "enrichment": self.enricher.state(),
            "summary": self._talk and self._talk.trouble,
            "vectors": self.feeder.state(),
            "care": self.keeper.state(),
            "erasures": under_way(self.services),
            "away": {one.where: one.trouble for one in self.services.servers if one.trouble},
        }

    def _changing(self) -> dict[str, object] | None:
        """How far the vectors of a new model are, while the one before still answers."""
        new = self.upkeep.target.model
        if new.key == self.services.embedder.model.key:
            return None
        store = self.services.items.status(new.key)
        return {"to": new.name, "embedded": store.items - store.unembedded, "of": store.items}

    def _model_use(self) -> dict[str, object]:
        meter = self.model
        if meter is None:
            return {}
        counts = {name: getattr(meter, name) for name in METERED}
        return {"name": meter.name, **counts}

    def prompt(self, task: str, budget: int | None, history: bool) -> str:
        """The task, what is known that bears on it, and what was said so far."""
        head = f"Current task: {check_text(task, 'task')}"
        left = None if budget is None else max(0, budget - self.services.count_tokens(head + "\n\n"))
        told, shown = self._history(None if left is None else left // 3) if history and self.session else ("", None)
        work = self._work(left) if shown else ""
        if left is not None:
            left = max(0, left - self.services.count_tokens(f"{work}\n\n{told}"))
        known = str(self.recall(RecallRequest(task, budget=left, shown=shown)))
        return "\n\n".join(part for part in (head, work, known, told) if part)

    def _work(self, budget: int | None) -> str:
        """What is at hand; recall tells it by itself where no conversation is shown, with what happened last."""
        room = SESSION_TOKENS if budget is None else min(SESSION_TOKENS, budget // 4)
        text = self.working.context(room) if self.task_at_hand() else ""
        return str(Section(SESSION_HEADING, tuple(text.splitlines()))) if text else ""

    def _history(self, budget: int | None) -> tuple[str, frozenset[str] | None]:
        """The newest turns that fit, and the summary of those before, quoted as everything that was kept; and which
        messages these are."""
        window = self.conversation().window()
        told = [(one, message_to_note(one, "").text) for one in window.messages]  # with the calls in it
        lines = [(f'- {one.speaker or one.role}: "{escape_text(text)}"', one.id or "") for one, text in told]
        if window.summary:
            lines.insert(0, ("\n".join(("- before:", *quote_lines(window.summary))), ""))
        while lines and budget is not None and self.services.count_tokens(_told(lines)) > budget:
            del lines[0]
        return (_told(lines), frozenset(id for _, id in lines)) if lines else ("", None)

    def _cared_for(self, still: Callable[[], None]) -> MaintenanceReport:
        return self.maintain(False, False, False, Watch(still=still), everyone=True)

    def maintain(
        self, dry_run: bool, reembed: bool, trust_clock: bool, watch: Watch, everyone: bool = False
    ) -> MaintenanceReport:
        # By the present embedder, even while the one before still answers.
        care = replace(self.services, embedder=self.upkeep.target)
        wanted = {"dry_run": dry_run, "reembed": reembed, "trust_clock": trust_clock}
        scopes = (memories(self.services) if everyone else []) or [self.scope]
        done = maintain(care, *scopes, **wanted, watch=watch)
        self.upkeep.change_over()
        if not dry_run:
            self.enricher.catch_up()
        return done

    def consolidate(self, dry_run: bool) -> ConsolidationResult:
        return consolidate(self.services, self.scope, dry_run=dry_run)

    def backup(self, path: str | os.PathLike[str], key: str | None) -> BackupInfo:
        return back_up(self.services, Path(path).expanduser(), key)

    def check(self, progress: Callable[[int], None], everyone: bool, store: str | None) -> list[CheckResult]:
        # Here, because nothing else needs it, and to open a memory is to be quick.
        from engrain.health import CheckContext, run_checks

        # By the present embedder, even while the one before still answers.
        services = replace(self.services, embedder=self.upkeep.target)
        others = memories(services) if everyone else None
        return run_checks(CheckContext(services, self.scope, self._beside(), others=others, store=store), progress)

    def rebuild(self, progress: Callable[[int], None]) -> int:
        """Every index made anew from the record store: the words at once, the vectors as far as they are missing."""
        seen = self.services.items.rebuild()
        while made := write.embed_missing(self.services, write.BATCH_SIZE):
            progress(made)
        if self.services.feed is not None:
            self.services.feed.refeed()
            while fed := self.services.feed.feed(BATCH):
                progress(fed)
        if self.services.audit is not None:
            self.services.audit.append("rebuild", {"items": seen})
        return seen

    def close(self) -> None:
        self.keeper.stop()
        self.enricher.stop()
        self.upkeep.stop()
        self.feeder.stop()
        self.services.close()


def _told(lines: Sequence[tuple[str, str]]) -> str:
    return str(Section(HISTORY, tuple(line for line, _ in lines)))
