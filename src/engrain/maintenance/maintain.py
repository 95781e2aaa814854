"""One round of maintenance over one scope or a whole store: each pass is planned, then carried out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from engrain.core.clock import CLOCK_CONFIRMATION, ClockState, clock_jumped, next_state, write_clock_state
from engrain.core.errors import EngrainError, LeaseLost, StoreClosed, StoreError, StoreUnavailable, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.markdown.layout import has_placeholder, widen_folder_pattern
from engrain.core.markdown.three_way_merge import MEMORY, SOUL
from engrain.core.model.results import MaintenanceAction, MaintenanceReport
from engrain.core.model.tasks import ENDED_STATUSES, Claim, TaskEnd, TaskQuery
from engrain.maintenance.backups import plan_backups
from engrain.maintenance.embedding import count_missing, count_vectors, plan_vector_passes
from engrain.maintenance.episodes import plan_episode_passes
from engrain.maintenance.passes import (
    CLOCK_TASK,
    MAINTENANCE_SCOPE,
    NO_HOOKS,
    NO_LIMIT,
    REMOVED,
    MaintenanceContext,
    MaintenancePass,
    PassResult,
    ReportProgress,
    RunHooks,
    list_scopes,
    load_clock_state,
)
from engrain.maintenance.remove_unused import plan_consolidation
from engrain.mirror.mirror import Mirror, read_folder_base
from engrain.ports import Services
from engrain.ports.storage import Folder, make_private_folder
from engrain.privacy.audit import record
from engrain.privacy.erase import resume_erasures
from engrain.tasks.lease import create_worker_name

T = TypeVar("T")
_LEASE_SECONDS = 10.0
_log = logging.getLogger("engrain")


def maintain(
    services: Services,
    *scopes: Scope,
    dry_run: bool = False,
    reembed: bool = False,
    trust_clock: bool = False,
    hooks: RunHooks = NO_HOOKS,
) -> MaintenanceReport:
    """Plan every pass and carry it out; a dry run only plans. `trust_clock` accepts any jump of the clock."""
    now = services.clock()
    known = load_clock_state(services, now, *scopes)
    jumped = clock_jumped(known, now) and not trust_clock
    problems = [_describe_clock_jump(known, now)] if jumped else []
    contexts = [MaintenanceContext(services, scope, now, reembed, jumped) for scope in scopes]
    run = MaintenanceRun(contexts, dry_run, hooks)
    run.run()
    if not dry_run:
        for scope, counts in run.count_removed().items():
            record(services, "maintain", {"counts": dict(counts)}, scope)
        with _note_problems(problems, "answers to old requests"):
            if not jumped:  # they hold no content, so the report does not list them
                services.items.drop_answers(now - timedelta(days=services.policies.request_days))
        with _note_problems(problems, "bytes of forgotten items"):
            services.items.purge()  # those that a reader held until now
        _record_run(services, ClockState() if trust_clock else known, now)
    return run.build_report(problems)


class MaintenanceRun:
    """Plan each pass as if those before it were done, then carry it out, unless it is a dry run.

    One scope follows the other, so that only one is in memory. A failed pass does not stop the others.
    """

    def __init__(self, contexts: Sequence[MaintenanceContext], dry_run: bool, hooks: RunHooks) -> None:
        self._contexts, self._dry_run, self._hooks = contexts, dry_run, hooks
        self._store = replace(contexts[0], whole_store=True)
        self._done: dict[str, tuple[MaintenancePass, list[MaintenanceAction]]] = {}
        self._failures: dict[str, list[Scope | None]] = {}
        self._unavailable: set[str] = set()  # passes whose server does not answer
        self._removed: set[str] = set()  # consolidated items
        self._removed_unembedded = 0
        self._changed: set[Scope] = set()

    def run(self) -> None:
        self._plan_and_do("erased", self._store, plan_erasures)
        counts = self._plan("embedded", self._store, count_vectors)  # before anything changes
        self._finish_episodes()
        self._consolidate()
        if counts is not None:
            counts = counts.after(len(self._removed), self._removed_unembedded, len(self._actions("promoted")))
            plan = partial(plan_vector_passes, counts=counts, removed=self._removed)
            self._plan_and_do("embedded", self._store, plan)
        self._prune_tasks()
        self._expire_records()
        for context, folder in self._find_folders():
            plan_mirror = partial(plan_folder_sync, folder=folder, changed=context.scope in self._changed)
            self._plan_and_do("mirrored", context, plan_mirror)
        self._plan_and_do("backed_up", self._store, plan_backups)

    def _finish_episodes(self) -> None:
        """Promote important episodes of every scope before anything expires: the store expires all scopes at once.

        If the run does not cover every scope, only its own episodes expire.
        """
        expiring: list[tuple[MaintenanceContext, MaintenancePass]] = []
        later: list[tuple[MaintenanceContext, MaintenancePass]] = []
        promoted = True
        for context in self._contexts:
            found = self._plan("episodes", context, plan_episode_passes)
            promoted &= found is not None and self._do(context, found[0])
            for planned in (found or ())[1:]:
                (expiring if planned.name == "expired" else later).append((context, planned))
        if not promoted:
            expiring = [(context, replace(planned, actions=())) for context, planned in expiring]
            reason = StoreError("left for the next round: not all important episodes could be kept.")
            self._note_failure("expired", None, reason)
        episodes = self._store.services.episodes
        if expiring and {*list_scopes(self._store.services)} <= {context.scope for context in self._contexts}:
            actions = [action for context, planned in expiring for action in _set_scope(context.scope, planned).actions]
            expire = partial(episodes.expire, self._store.now) if episodes and promoted else None
            self._do_for_all(replace(expiring[0][1], actions=tuple(actions)), expire)
            expiring = []
        for context, planned in (*expiring, *later):
            self._do(context, planned)

    def _prune_tasks(self) -> None:
        journal, days = self._store.services.journal, self._store.policies.task_days
        before = self._store.now - timedelta(days=days)
        found = [self._plan("pruned", context, partial(find_old_tasks, before=before)) for context in self._contexts]
        actions = tuple(action for some in found for action in some or ())
        qualifier = f"that ended more than {days:g} days ago"
        pruning = MaintenancePass("pruned", actions, REMOVED, "task", qualifier, lambda report: None)
        self._do_for_all(pruning, partial(journal.prune, before) if journal else None)

    def _expire_records(self) -> None:
        records, now = self._store.services.records, self._store.now
        found = [self._plan("expired_records", context, find_expired_records) for context in self._contexts]
        actions = tuple(action for some in found for action in some or ())
        if records is not None and actions:
            expired = MaintenancePass(
                "expired_records", actions, REMOVED, "record", "whose time is over", lambda _: None
            )
            self._do_for_all(expired, partial(records.expire, now))

    def _consolidate(self) -> None:
        self._changed = {action.scope for action in self._actions("promoted") if action.scope}
        for context in self._contexts:
            planned = self._plan("consolidated", context, plan_consolidation)
            if planned is None:
                continue
            if planned.actions:
                ids = [action.id for action in planned.actions]
                self._removed.update(ids)
                self._removed_unembedded += self._plan("embedded", context, partial(count_missing, ids=ids)) or 0
                self._changed.add(context.scope)
            self._do(context, planned)

    def _find_folders(self) -> Iterator[tuple[MaintenanceContext, Folder]]:
        """Find the folder that mirrors each scope. A folder shared by several scopes belongs to one of them."""
        open_folder, sharing = self._store.services.folder, dict[str, list[MaintenanceContext]]()
        if open_folder is None:
            return
        written = {*list_scopes(self._store.services)}
        for context in self._contexts:
            folder = open_folder(context.scope)
            # A scope that was never written, such as a mistyped name, gets no folder.
            if context.scope in written or self._inspect(context, folder, has_files):
                sharing.setdefault(folder.path, []).append(context)
        for contexts in sharing.values():
            folder = open_folder(contexts[0].scope)
            if len(contexts) == 1:
                yield contexts[0], folder
                continue
            base = self._inspect(self._store, folder, read_folder_base)
            owner = base.scope if base else None
            yield from ((context, folder) for context in contexts if context.scope.id == owner)
            others = [context.scope for context in contexts if context.scope.id != owner]
            # A plain folder name may serve one scope of many: nobody asked for more.
            if len(others) == len(contexts) or has_placeholder(self._store.policies.mirror):
                scopes = [context.scope for context in contexts]
                self._note_failure("mirrored", None, StoreError(self._describe_sharing(folder.path, scopes, others)))

    def _inspect(self, context: MaintenanceContext, folder: Folder, inspect: Callable[[Folder], T]) -> T | None:
        return self._plan("mirrored", context, lambda _: inspect(folder))

    def _describe_sharing(self, path: str, scopes: Sequence[Scope], others: Sequence[Scope]) -> str:
        pattern = widen_folder_pattern(self._store.policies.mirror, *scopes)
        return (
            f"{path} mirrors one memory, and {len(others):,} more would use it, such as that of {others[0]}. "
            f'Give each its own: mirror = "{pattern}" in [lifecycle].'
        )

    # One pass

    def _plan_and_do(
        self, name: str, context: MaintenanceContext, plan: Callable[[MaintenanceContext], list[MaintenancePass]]
    ) -> None:
        for planned in self._plan(name, context, plan) or ():
            self._do(context, planned)

    def _plan(self, name: str, context: MaintenanceContext, plan: Callable[[MaintenanceContext], T]) -> T | None:
        """Return the plan; None if it fails."""
        if name in self._unavailable:
            return None
        try:
            return plan(context)
        except StoreClosed:
            raise
        except EngrainError as exc:
            self._note_failure(name, context.owner, exc)
            return None

    def _do(self, context: MaintenanceContext, planned: MaintenancePass, always: bool = False) -> bool:
        """Carry out a pass, `always` even without actions. False if it failed."""
        actions, succeeded = planned.actions, True
        if not self._dry_run and (actions or always):
            try:
                self._hooks.before_pass()
                result = planned.act(self._hooks.report)
                actions = result.actions if result else actions
                if result and result.problem:
                    self._note_failure(planned.name, context.owner, result.problem)
            except StoreClosed:
                raise
            except EngrainError as exc:
                self._note_failure(planned.name, context.owner, exc)
                actions, succeeded = (), False
        _, so_far = self._done.setdefault(planned.name, (planned, []))
        so_far.extend(_set_scope(context.owner, replace(planned, actions=actions)).actions)
        return succeeded

    def _do_for_all(self, planned: MaintenancePass, call: Callable[[], object] | None) -> None:
        """Let the store do a pass for all scopes at once, also those that have planned nothing."""

        def act(report: ReportProgress) -> None:
            if call is not None:
                call()
            report(len(planned.actions))

        self._do(self._store, replace(planned, act=act), always=call is not None and not self._store.clock_jumped)

    def _note_failure(self, name: str, scope: Scope | None, reason: EngrainError | str) -> None:
        if isinstance(reason, EngrainError):
            raise_interrupt(reason)
        if isinstance(reason, StoreUnavailable):
            self._unavailable.add(name)  # the other scopes would only wait for the same server
        self._failures.setdefault(f"{name}: {reason}", []).append(scope)

    # The report

    def _actions(self, name: str) -> Sequence[MaintenanceAction]:
        return self._done[name][1] if name in self._done else ()

    def count_removed(self) -> dict[Scope | None, Counter[str]]:
        """Count the removals by scope and name of the pass."""
        counts: dict[Scope | None, Counter[str]] = {}
        for name, (planned, actions) in self._done.items():
            for action in actions if planned.verb is REMOVED else ():
                counts.setdefault(action.scope, Counter())[name] += 1
        return counts

    def build_report(self, problems: Sequence[str]) -> MaintenanceReport:
        done = [replace(planned, actions=tuple(actions)) for planned, actions in self._done.values()]
        return MaintenanceReport(
            self._dry_run,
            {planned.name: len(planned.actions) for planned in done},
            tuple(map(self._describe_pass, done)),
            tuple(action for planned in done for action in planned.actions),
            (*problems, *(self._describe_failure(*failure) for failure in self._failures.items())),
            len(self._contexts),
        )

    def _describe_pass(self, planned: MaintenancePass) -> str:
        own = {None, *(context.scope for context in self._contexts)}
        others = sum(action.scope not in own for action in planned.actions)
        return planned.line(self._dry_run) + (f", {others:,} of them in other memories" if others else "")

    def _describe_failure(self, text: str, scopes: Sequence[Scope | None]) -> str:
        if scopes[0] is None or len(self._contexts) == 1:
            return text
        return f"{scopes[0]}: {text}" if len(scopes) == 1 else f"{text} (of {scopes[0]} and {len(scopes) - 1:,} more)"


def _set_scope(scope: Scope | None, planned: MaintenancePass) -> MaintenancePass:
    return replace(planned, actions=tuple(replace(action, scope=action.scope or scope) for action in planned.actions))


def _describe_clock_jump(known: ClockState, now: datetime) -> str:
    return (
        f"the clock says {now:%Y-%m-%d}, and this memory was last maintained or written to on {known.last:%Y-%m-%d}. "
        f"Nothing is removed for its age until the clock has said so for {CLOCK_CONFIRMATION.days} day, or until you "
        "confirm it: engrain maintain --trust-clock."
    )


@contextmanager
def _note_problems(problems: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except StoreClosed:
        raise
    except EngrainError as exc:
        raise_interrupt(exc)
        problems.append(f"{what}: {exc}")


def _record_run(services: Services, before: ClockState, now: datetime) -> None:
    """Record the time of a run. Another process that records its own at the same time serves as well."""
    after, journal = next_state(before, now), services.journal
    if journal is None or (after == before and journal.task(MAINTENANCE_SCOPE, CLOCK_TASK) is not None):
        return
    claim = Claim(MAINTENANCE_SCOPE, CLOCK_TASK, create_worker_name(), _LEASE_SECONDS, "times of maintenance")
    try:
        lease = journal.claim(claim)
        journal.keep(lease, write_clock_state(after))
        journal.end(lease, TaskEnd("parked"))
    except StoreClosed:
        raise
    except (EngrainError, LeaseLost) as exc:
        raise_interrupt(exc)
        _log.info("the time of this run was not recorded: %s", exc)


def plan_erasures(context: MaintenanceContext) -> list[MaintenancePass]:
    """Plan to complete the running erasures of the whole store; no pass if there are none."""
    running = context.services.erasing.running() if context.services.erasing else []
    if not running:
        return []

    def act(report: ReportProgress) -> PassResult:
        answers = resume_erasures(context.services, lambda _: None)
        complete = {answer.id for answer in answers if answer.receipt}
        waiting = [f"{answer.id}: {answer.why}" for answer in answers if answer.pending]
        report(len(complete))
        problem = f"{len(waiting):,} still to be completed: {' '.join(waiting)}" if waiting else ""
        return PassResult(tuple(action for action in actions if action.id in complete), problem)

    actions = tuple(
        MaintenanceAction("complete", erasure.id, f"an erasure by {erasure.by}, begun {erasure.at:%Y-%m-%d}")
        for erasure in running
    )
    return [MaintenancePass("erased", actions, ("completed", "complete"), "erasure", "under way", act)]


def find_old_tasks(context: MaintenanceContext, before: datetime) -> list[MaintenanceAction]:
    """List the tasks of this scope that ended before this time."""
    journal, days = context.services.journal, context.policies.task_days
    if journal is None or context.is_on_hold or context.clock_jumped:
        return []
    ended = journal.tasks(TaskQuery(context.scope, ENDED_STATUSES, limit=NO_LIMIT))
    why = f"more than {days:g} days ago"
    return [
        MaintenanceAction(
            "remove", task.task, f"{task.status} {task.ended_at:%Y-%m-%d}, {why}", task.goal, context.scope
        )
        for task in ended
        if task.ended_at is not None and task.ended_at < before
    ]


def find_expired_records(context: MaintenanceContext) -> list[MaintenanceAction]:
    """List the records of this scope whose time is over."""
    records = context.services.records
    if records is None or context.clock_jumped:
        return []
    over = records.expired(context.scope, context.now)
    return [
        MaintenanceAction("remove", "/".join((space, *key)), f"expired {end:%Y-%m-%d}", scope=context.scope)
        for space, key, end in over
    ]


def has_files(folder: Folder) -> bool:
    return any(folder.read(name) for name in (MEMORY, SOUL)) or bool(folder.days())


def plan_folder_sync(context: MaintenanceContext, folder: Folder, changed: bool) -> list[MaintenancePass]:
    """Plan to sync the folder of this scope. `changed` says that earlier passes change the scope's items."""
    mirror = Mirror(context.services, context.scope, folder)
    pending = mirror.pending()

    def act(report: ReportProgress) -> None:
        parent = Path(mirror.path).parent
        try:
            make_private_folder(parent)
        except OSError as exc:
            raise StoreError(f"the folder {parent} cannot be made: {exc.strerror}.") from exc
        mirror.sync()
        report(1)

    due = changed or bool(pending.written or pending.taken)
    actions = (MaintenanceAction("sync", mirror.path, "the files and the memory were not in step"),) if due else ()
    return [MaintenancePass("mirrored", actions, ("synced", "sync"), "folder", "of files", act)]
