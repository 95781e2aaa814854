"""Store: the opened database of a process, with the operator's verbs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import StoreClosed
from engrain.core.identity import Scope
from engrain.core.validation import check_count, check_key
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.formats.manifests import BackupInfo
    from engrain.core.model.audit import AuditEntry, AuditResult
    from engrain.core.model.erasure import Hold, HoldRelease
    from engrain.core.model.results import CheckResult, MaintenanceReport, MemoryInfo, Status
    from engrain.core.progress import Progress
    from engrain.maintenance.workers import Workers
    from engrain.memory.memory import Memory
    from engrain.ports import Embedder, Model, Services
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult
    from engrain.transfer.copy import CopyResult

PathLike = str | os.PathLike[str]


class Store:
    """The opened database of a process: connections, embedder, background workers, and the verbs of who runs it.

        with Store("agent.db") as store:
            ana = store.memory(user="ana")
            ana.remember("Ana prefers Python over JavaScript.")

    `location` is a path (the file is made on first use), a URL, or the path of a .toml file. `model` is a small one,
    such as "anthropic" or "ollama:NAME", for better summaries and facts in the background; without one all works. `key`
    (or ENGRAIN_KEY) encrypts the file: pip install "engrain[encryption]". `settings` are tables under the names of the
    .toml file, such as {"lifecycle": {"every_minutes": 60}, "privacy": {"redact": ["keys"]}}. Safe to use from several
    threads and, on one file, from several processes.
    """

    def __init__(
        self,
        location: PathLike | None = None,
        *,
        embedder: Embedder | str | None = None,
        model: Model | str | None = None,
        key: str | None = None,
        clock: Clock = system_clock,
        read_only: bool = False,
        background: bool = True,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        # Imported here, so that `import engrain` stays light: numpy and the store's engine come with the first store.
        from engrain.factory import open_services
        from engrain.maintenance.workers import Workers

        services = open_services(
            location, embedder=embedder, model=model, key=key, clock=clock, read_only=read_only, tables=settings
        )
        self._location = None if location is None else os.fsdecode(location)
        try:
            workers = Workers(services, background and not services.read_only)
            workers.start()
            if not services.read_only:
                workers.resume_erasures()
        except BaseException:
            services.close()
            raise
        self._workers: Workers | None = workers

    def memory(
        self,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        reads: Sequence[Scope] = (),
    ) -> Memory:
        """A view of one scope: no thread, no file, nothing to close. `reads` are other scopes that recall may read."""
        from engrain.memory.memory import Memory

        return Memory(self, user=user, agent=agent, tenant=tenant, reads=reads)

    @traced
    def memories(self) -> list[MemoryInfo]:
        """Every memory of this store, whoever's. A memory that is being erased is not shown."""
        from engrain.core.model.queries import ListQuery
        from engrain.core.model.results import MemoryInfo
        from engrain.maintenance.passes import list_scopes

        count = self.services.items.count
        found = list_scopes(self.services)
        return [MemoryInfo(one.tenant, one.agent, one.user, count(ListQuery(one))) for one in found]

    @traced
    def status(self, scope: Scope | None = None) -> Status:
        """How the store stands: where it is, how much it holds, what is running, what is amiss; or one memory in it."""
        from engrain.maintenance.status import read_status

        return read_status(self._open, scope)

    @traced
    def maintain(
        self,
        scope: Scope | None = None,
        *,
        dry_run: bool = False,
        reembed: bool = False,
        trust_clock: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport:
        """One round of maintenance over all memories, or over one: docs/how-to/maintain.md has the passes.

        A dry run says exactly what a real one then does; `each` of the answer has it item by item, with the reason.
        With `reembed` everything gets vectors of the present model, and those of others go. With `trust_clock` the
        clock is right, although it says that half a year went by since the last round.
        """
        from engrain.core.progress import count_progress
        from engrain.maintenance.passes import RunHooks

        watch = RunHooks(count_progress(progress, "maintain"))
        scopes = self._open.scopes() if scope is None else [scope]
        return self._open.maintain(scopes, watch, dry_run=dry_run, reembed=reembed, trust_clock=trust_clock)

    @traced
    def backup(self, path: PathLike, *, key: str | None = None) -> BackupInfo:
        """Copy the whole store to a new file while it is in use, read it again and check it. With a key it is
        encrypted; a backup of an encrypted store has the store's key. `restore_backup` brings it back."""
        from engrain.maintenance.backups import back_up

        return back_up(self.services, Path(path).expanduser(), key)

    @traced
    def doctor(self, scope: Scope | None = None, *, progress: Progress | None = None) -> list[CheckResult]:
        """The 35 checks of docs/reference/checklist.md, each with its state, the reason and the fix.

        Nothing is changed. All memories of the store are looked into, or one."""
        from engrain.core.progress import count_progress
        from engrain.health import CHECKS, CheckContext, run_checks
        from engrain.maintenance.passes import list_scopes
        from engrain.maintenance.status import read_background_state

        services = self._open.target
        others = list_scopes(services) if scope is None else None
        look = CheckContext(
            services, scope or Scope(), read_background_state(self._open), others=others, store=self._location
        )
        return run_checks(look, count_progress(progress, "points", len(CHECKS)))

    @traced
    def rebuild(self, *, progress: Progress | None = None) -> int:
        """Make every index anew from the stored texts; the number of items seen."""
        from engrain.core.progress import count_progress
        from engrain.maintenance.reembed import rebuild_indexes

        return rebuild_indexes(self.services, count_progress(progress, "vectors"))

    @traced
    def copy(self, to: PathLike, *, progress: Progress | None = None) -> CopyResult:
        """Copy the whole store to another one, which is new or was left half copied; then read both and compare."""
        from engrain.memory.transfer import copy

        return copy(self.services, to, progress)

    # Privacy

    @traced
    def erase(
        self,
        *,
        user: str,
        tenant: str | None = None,
        folders: Sequence[PathLike] = (),
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ErasureResult:
        """Erase everything of a user of a tenant, whatever agent knows it: every tier, index, journal and server, and
        the files in `folders`, down to the bytes. Then it is looked for, and the answer has a receipt.

        Names are matched exactly: NotFound if nothing was ever kept of the user. OnHold under a legal hold. A dry run
        changes nothing. Killed anywhere, it goes on when the store is next opened, or when it is asked for again."""
        from engrain.privacy.requests import erase_subject, make_user_subject

        return erase_subject(self.services, make_user_subject(tenant, user), folders, dry_run, progress)

    @traced
    def undo(self, source: str, scope: Scope, *, dry_run: bool = False, progress: Progress | None = None) -> UndoResult:
        """Take back what came from one source into a memory, such as a poisoned page, with all it led to.

        What those items had replaced or corrected holds again. A dry run only shows them."""
        from engrain.privacy.requests import undo_source

        return undo_source(self.services, scope, check_key(source, "source"), dry_run, progress)

    @traced
    def resume_erasures(self, *, progress: Progress | None = None) -> list[ErasureResult]:
        """Complete every erasure that is running, whoever began it."""
        from engrain.core.progress import stage_progress
        from engrain.privacy.erase import resume_erasures

        return resume_erasures(self.services, stage_progress(progress))

    @traced
    def verify_erasure(
        self, receipt: Receipt | str | bytes, *, texts: Sequence[str] = (), scope: Scope | None = None
    ) -> VerificationResult:
        """Look again: no row is left, and nothing on the servers of the settings, the audit log holds the receipt, and
        none of these texts is in any file. `beside` of the answer names the servers; one that does not answer is no
        proof, and the answer is not true. With a `scope` that was erased, servers are asked for it by name."""
        from engrain.privacy.receipts import Receipt, verify_receipt

        given = receipt if isinstance(receipt, Receipt) else Receipt.read(receipt)
        return verify_receipt(self.services, given, texts, scope or Scope())

    @traced
    def hold(self, user: str, *, tenant: str | None = None, reason: str = "legal") -> Hold:
        """Keep a user's data from being removed until each reason is released. A reason is a code word, such as a file
        number: no content. The answer names no `user` if nothing is kept of them yet."""
        from engrain.privacy.holds import hold_user
        from engrain.privacy.requests import make_user_subject

        return hold_user(self.services, make_user_subject(tenant, user), reason)

    @traced
    def release(
        self, user: str, *, tenant: str | None = None, reason: str | Sequence[str] | None = None
    ) -> HoldRelease:
        """End a hold for a reason, for several (all or none), or for its only one; Conflict if there are several and
        none is named. With the last the hold is over, and what an erasure had hidden meanwhile is shown again:
        `refused` says when it was asked for. Not true, and nothing is changed, if one of them was not there."""
        from engrain.privacy.holds import release_user
        from engrain.privacy.requests import make_user_subject

        return release_user(self.services, make_user_subject(tenant, user), reason)

    @traced
    def holds(self, *, user: str | None = None, tenant: str | None = None) -> list[Hold]:
        """Every hold of this store, by name where a memory says it, or that of one user if there is one."""
        from engrain.privacy.holds import list_holds
        from engrain.privacy.requests import make_user_subject

        return list_holds(self.services, None if user is None else make_user_subject(tenant, user))

    @traced
    def audit(
        self, *, user: str | None = None, tenant: str | None = None, after: int | None = None, limit: int = 1_000
    ) -> list[AuditEntry]:
        """What was removed, moved and held, without content: entries with a number above `after`, or the newest. Of a
        `user`, those that concern all of them, not one session or item."""
        from engrain.privacy.audit import list_entries
        from engrain.privacy.requests import make_user_subject

        subject = None if user is None else make_user_subject(tenant, user)
        after = None if after is None else check_count(after, "after", 0, 1 << 60)
        return list_entries(self.services, subject, after, check_count(limit, "limit", 1, 1_000_000))

    @traced
    def verify_audit(self, *, head: str | None = None) -> AuditResult:
        """Find an entry that was changed, removed, moved or cut off. With the `head` that an earlier look gave
        (`AuditResult.kept`) and that was kept elsewhere, also a log that was put back or written anew as a whole."""
        from engrain.privacy.audit import verify_log

        return verify_log(self.services, head)

    # The store itself

    @property
    def services(self) -> Services:
        """The ports behind this store."""
        return self._open.services

    @property
    def workers(self) -> Workers:
        """The background workers of this store."""
        return self._open

    def close(self) -> None:
        """Stop the workers, write what is buffered and close the files. A second call does nothing."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()
            workers.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self._location!r})"

    @property
    def _open(self) -> Workers:
        if self._workers is None:
            raise StoreClosed("this store was closed. Open it again: Store(…), or Memory(…).")
        return self._workers
