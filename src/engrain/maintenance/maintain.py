"""One round of care over a memory, or over all of a store: every pass says what it does, a dry run beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from engrain.core.clock import CLOCK_CONFIRMATION, ClockState, clock_jumped
from engrain.core.errors import EngrainError, StoreClosed, StoreError, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.markdown.folder_names import has_placeholder, widen_folder_pattern
from engrain.core.model.results import MaintenanceAction, MaintenanceReport
from engrain.maintenance import clock_guard, consolidate, episodes, side_stores
from engrain.maintenance import reembed as vectors
from engrain.maintenance.clock_guard import memories
from engrain.maintenance.passes import REMOVED, UNWATCHED, MaintenanceContext, MaintenancePass, Tell, Watch
from engrain.ports import Services
from engrain.ports.storage import Folder
from engrain.privacy.audit import record

T = TypeVar("T")


@dataclass
class Gone:
    """The items that go, how many of them lack a vector, and in which memories something changes."""

    ids: set[str] = field(default_factory=set)
    lacking: int = 0
    changed: set[Scope] = field(default_factory=set)


class MaintenanceRun:
    """Each pass is planned as if those before it were done, and then carried out, unless it is a dry run: one memory
    after the other, of which only one is at hand. What fails keeps nothing else from being done."""

    def __init__(self, cares: Sequence[MaintenanceContext], dry_run: bool, watch: Watch) -> None:
        self._cares, self._dry_run, self._watch = cares, dry_run, watch
        self._store = replace(cares[0], whole=True)
        self._came_to: dict[str, tuple[MaintenancePass, list[MaintenanceAction]]] = {}
        self._trouble: dict[str, list[Scope | None]] = {}
        self._away: set[str] = set()

    def run(self) -> None:
        for one in self._planned("erased", self._store, side_stores.planned) or ():
            self._do(self._store, one)
        # By what is there before anything is done.
        stood = self._planned("embedded", self._store, vectors.standing)
        self._end_episodes()
        gone = self._let_go()
        if stood is not None:
            self._embed(stood, gone)
        told = [(care, self._planned("pruned", care, side_stores.prune)) for care in self._cares]
        self._do_once([_of(care.scope, one) for care, one in told if one])
        for care, folder in self._folders():
            self._mirror(care, folder, care.scope in gone.changed)
        for one in self._planned("backed_up", self._store, side_stores.backed_up) or ():
            self._do(self._store, one)

    def _end_episodes(self) -> None:
        """What matters lasts in every memory before anything goes: the store lets go of all that is over at once. Where
        not every memory has its turn, only what is of those that have goes."""
        over: list[MaintenancePass] = []
        later: list[tuple[MaintenanceContext, MaintenancePass]] = []
        kept = True
        for care in self._cares:
            found = self._planned("episodes", care, episodes.passes)
            kept &= found is not None and self._do(care, found[0])
            over += [_of(care.scope, found[1])] if found else []
            later += [(care, one) for one in (found or ())[2:]]
        if not kept:
            over = [replace(one, each=(), always=False) for one in over]
            self._failed("expired", None, StoreError("left for the next round: not all that matters could be kept."))
        if {*memories(self._store.services)} <= {care.scope for care in self._cares}:
            self._do_once(over)
        else:
            for care, one in zip(self._cares, over, strict=False):
                self._do(care, episodes.own(care, one))
        for care, one in later:
            self._do(care, one)

    def _let_go(self) -> Gone:
        gone = Gone(changed={doing.scope for doing in self._each("promoted") if doing.scope})
        for care in self._cares:
            faint = self._planned("consolidated", care, consolidate.planned)
            if faint and faint.each:
                ids = [doing.id for doing in faint.each]
                gone.ids.update(ids)
                gone.lacking += self._planned("embedded", care, partial(vectors.lacking, ids=ids)) or 0
                gone.changed.add(care.scope)
            if faint:
                self._do(care, faint)
        return gone

    def _embed(self, stood: vectors.Standing, gone: Gone) -> None:
        stands = stood.then(len(gone.ids), gone.lacking, len(self._each("promoted")))
        passes = self._planned("embedded", self._store, partial(vectors.passes, stands=stands, going=gone.ids))
        for one in passes or ():
            self._do(self._store, one)

    def _mirror(self, care: MaintenanceContext, folder: Folder, changes: bool) -> None:
        one = self._planned("mirrored", care, partial(side_stores.mirror, folder=folder, changes=changes))
        if one:
            self._do(care, one)

    def _folders(self) -> Iterator[tuple[MaintenanceContext, Folder]]:
        """Which memory is kept in step with which folder."""
        open_folder, sharing = self._store.services.folder, dict[str, list[MaintenanceContext]]()
        if open_folder is None:
            return
        written = {*memories(self._store.services)}
        for care in self._cares:
            folder = open_folder(care.scope)
            # A memory that was never written, such as that of a mistyped name, gets no folder.
            if care.scope in written or self._looked(care, folder, side_stores.has_files):
                sharing.setdefault(folder.path, []).append(care)
        for cares in sharing.values():
            folder = open_folder(cares[0].scope)
            if len(cares) == 1:
                yield cares[0], folder
                continue
            whose = self._looked(self._store, folder, side_stores.belongs_to)
            yield from ((care, folder) for care in cares if care.scope.id == whose)
            others = [care.scope for care in cares if care.scope.id != whose]
            # One folder for a store of many memories is that of one, for as long as it is: nobody asked for more.
            if len(others) == len(cares) or has_placeholder(self._store.policies.mirror):
                self._failed("mirrored", None, StoreError(self._shared(folder.path, cares, others)))

    def _looked(self, care: MaintenanceContext, folder: Folder, look: Callable[[Folder], T]) -> T | None:
        return self._planned("mirrored", care, lambda _: look(folder))

    def _shared(self, path: str, cares: Sequence[MaintenanceContext], others: Sequence[Scope]) -> str:
        each = widen_folder_pattern(self._store.policies.mirror, *(care.scope for care in cares))
        return (
            f"{path} is kept in step with one memory, and {len(others):,} more would have it, such as that of "
            f'{others[0]}. Give each its own: mirror = "{each}" in [lifecycle].'
        )

    # One pass

    def _planned(self, name: str, care: MaintenanceContext, plan: Callable[[MaintenanceContext], T]) -> T | None:
        """None if it cannot be."""
        if name in self._away:
            return None
        try:
            return plan(care)
        except StoreClosed:
            raise
        except EngrainError as exc:
            self._failed(name, care.owner, exc)
            return None

    def _do(self, care: MaintenanceContext, one: MaintenancePass) -> bool:
        """False if it failed."""
        each, well = one.each, True
        if not self._dry_run and (each or one.always):
            try:
                self._watch.still()
                done = one.act(self._watch.tell)
                each = done.each if done else each
                if done and done.trouble:
                    self._failed(one.name, care.owner, done.trouble)
            except StoreClosed:
                raise
            except EngrainError as exc:
                self._failed(one.name, care.owner, exc)
                each, well = (), False
        _, so_far = self._came_to.setdefault(one.name, (one, []))
        so_far.extend(_of(care.owner, replace(one, each=each)).each)
        return well

    def _do_once(self, passes: Sequence[MaintenancePass]) -> None:
        """What the store does for all memories in one go, of which each has told its own."""
        if not passes:
            return
        each = tuple(doing for one in passes for doing in one.each)

        def act(tell: Tell) -> None:
            passes[0].act(lambda _: None)
            tell(len(each))

        self._do(self._store, replace(passes[0], each=each, act=act))

    def _failed(self, name: str, scope: Scope | None, why: EngrainError | str) -> None:
        # A server that does not answer for one memory answers for none, and each would wait for it.
        self._away |= {name} if isinstance(why, StoreUnavailable) else set()
        self._trouble.setdefault(f"{name}: {why}", []).append(scope)

    # What it came to

    def _each(self, name: str) -> Sequence[MaintenanceAction]:
        return self._came_to[name][1] if name in self._came_to else ()

    def gone(self) -> dict[Scope | None, Counter[str]]:
        """How much was removed, by whose it was and the name of the pass."""
        found: dict[Scope | None, Counter[str]] = {}
        for name, (one, each) in self._came_to.items():
            for doing in each if one.verb is REMOVED else ():
                found.setdefault(doing.scope, Counter())[name] += 1
        return found

    def answer(self, trouble: Sequence[str]) -> MaintenanceReport:
        came_to = [replace(one, each=tuple(each)) for one, each in self._came_to.values()]
        return MaintenanceReport(
            self._dry_run,
            {one.name: len(one.each) for one in came_to},
            tuple(map(self._line, came_to)),
            tuple(doing for one in came_to for doing in one.each),
            (*trouble, *(self._told(*one) for one in self._trouble.items())),
            len(self._cares),
        )

    def _line(self, one: MaintenancePass) -> str:
        here = {None, *(care.scope for care in self._cares)}
        others = sum(doing.scope not in here for doing in one.each)
        return one.line(self._dry_run) + (f", {others:,} of them in other memories" if others else "")

    def _told(self, what: str, scopes: Sequence[Scope | None]) -> str:
        if scopes[0] is None or len(self._cares) == 1:
            return what
        return f"{scopes[0]}: {what}" if len(scopes) == 1 else f"{what} (of {scopes[0]} and {len(scopes) - 1:,} more)"


def _of(scope: Scope | None, one: MaintenancePass) -> MaintenancePass:
    return replace(one, each=tuple(replace(doing, scope=doing.scope or scope) for doing in one.each))


__all__ = ["MaintenanceReport", "Watch", "maintain", "memories", "passes"]


def maintain(
    services: Services,
    *scopes: Scope,
    dry_run: bool = False,
    reembed: bool = False,
    trust_clock: bool = False,
    watch: Watch = UNWATCHED,
) -> MaintenanceReport:
    """Every pass is planned first, and then carried out: a dry run is the plan. With `trust_clock` the clock is right,
    however far it has gone on since it was last looked at."""
    now = services.clock()
    known = clock_guard.seen(services, now, *scopes)
    sudden = clock_jumped(known, now) and not trust_clock
    trouble = [_sudden(known, now)] if sudden else []
    course = MaintenanceRun(
        [MaintenanceContext(services, scope, now, reembed, sudden) for scope in scopes], dry_run, watch
    )
    course.run()
    if not dry_run:
        for scope, counts in course.gone().items():
            record(services, "maintain", {"counts": dict(counts)}, scope)
        _sweep(services, trouble)
        clock_guard.note(services, ClockState() if trust_clock else known, now)
    return course.answer(trouble)


def _sudden(known: ClockState, now: datetime) -> str:
    return (
        f"the clock says {now:%Y-%m-%d}, and this memory was last cared for or written to on {known.last:%Y-%m-%d}. "
        f"Nothing goes for its age until the clock has said so for {CLOCK_CONFIRMATION.days} day, or somebody says that it is "
        "right: engrain maintain --trust-clock."
    )


def _sweep(services: Services, trouble: list[str]) -> None:
    """Once more for what was forgotten while a reader held it, and was left pending."""
    try:
        services.items.purge()
    except StoreClosed:
        raise
    except EngrainError as exc:
        trouble.append(f"bytes of what was forgotten: {exc}")


def passes(care: MaintenanceContext) -> list[MaintenancePass]:
    """Those that are of one memory, in order: each is planned as if those before it were done."""
    return [*episodes.passes(care), consolidate.planned(care)]
