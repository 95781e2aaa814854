"""Store: the opened database of a process, with the operator's verbs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from engrain.client.connection import is_server_url
from engrain.config import load_settings
from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EmbedderFailed, StoreClosed
from engrain.core.identity import Scope
from engrain.core.secrets.urls import hide_secrets
from engrain.core.validation import check_count, check_key
from engrain.memory.foreign_verbs import answer_other_names
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.formats.manifests import BackupInfo
    from engrain.core.model.audit import AuditEntry, AuditResult
    from engrain.core.model.erasure import Hold, HoldRelease
    from engrain.core.model.records import RecordKey
    from engrain.core.model.results import CheckResult, MaintenanceReport, MemoryInfo, Progress, Status
    from engrain.maintenance.workers import Workers
    from engrain.memory.memory import Memory
    from engrain.ports import Model, Services
    from engrain.ports.search import Embedder
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult
    from engrain.transfer.copy import CopyResult

PathLike = str | os.PathLike[str]
_log = logging.getLogger("engrain")


@answer_other_names
class Store:
    """The opened database of a process: connections, embedder, background workers, and the operator's verbs.

        with Store("agent.db") as store:
            ana = store.memory(user="ana")
            ana.remember("Ana prefers Python over JavaScript.")

    `location` is a path (the file is made on first use), a URL, or the path of a .toml file. `model` is a small one,
    such as "anthropic" or "ollama:NAME", for better summaries and facts in the background; everything works without
    one. `key` (or ENGRAIN_KEY) encrypts the file: pip install "engrain[encryption]". `settings` are the tables of the
    .toml file, such as {"lifecycle": {"every_minutes": 60}, "privacy": {"redact": ["keys"]}}. Several threads may share
    a store, and several processes one file.

    The URL of `engrain serve` (https://…, unix:///…) opens nothing here: each verb is a request to that server, with
    the key in ENGRAIN_API_KEY or settings={"client": {"api_key": "engrain_…"}}.
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
        chosen = load_settings(location, settings)
        if is_server_url(chosen.store):
            from engrain.memory.remote import attach_store

            refused = {"embedder": embedder, "model": model, "key": key, "read_only": read_only}
            attach_store(self, chosen, {**refused, "clock": clock is not system_clock})
            return
        # Imported here, so that `import engrain` stays light: numpy and the engine are loaded with the first store.
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
        """Make a view of one scope: no thread, no file, nothing to close. `recall` also searches `reads`."""
        from engrain.memory.memory import Memory

        return Memory(self, user=user, agent=agent, tenant=tenant, reads=reads)

    @traced
    def memories(self) -> list[MemoryInfo]:
        """List every memory of this store. A memory that is being erased is not listed."""
        from engrain.core.model.queries import ListQuery
        from engrain.core.model.results import MemoryInfo
        from engrain.maintenance.passes import list_scopes

        count = self.services.items.count
        found = list_scopes(self.services)
        return [MemoryInfo(scope.tenant, scope.agent, scope.user, count(ListQuery(scope))) for scope in found]

    @traced
    def status(self, scope: Scope | None = None) -> Status:
        """Return the status of the store or of one memory: location, size, running work and problems."""
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
        """Do one round of maintenance over all memories or one. docs/how-to/maintain.md has the passes.

        A dry run says exactly what a real one does: `each` of the answer lists every action with its reason. `reembed`
        gives everything vectors of the current model, and removes those of others. `trust_clock` accepts a clock that
        jumped by half a year since the last round.
        """
        from engrain.core.model.results import count_progress
        from engrain.maintenance.maintain import maintain
        from engrain.maintenance.passes import RunHooks

        workers, hooks = self._open, RunHooks(count_progress(progress, "maintain"))
        scopes = workers.scopes() if scope is None else [scope]
        options = {"dry_run": dry_run, "reembed": reembed, "trust_clock": trust_clock}
        return workers.follow_maintenance(scopes, maintain(workers.target, *scopes, hooks=hooks, **options))

    @traced
    def backup(self, path: PathLike, *, key: str | None = None) -> BackupInfo:
        """Copy the whole store to a new file while it is in use, then read and check the copy.

        A `key` encrypts it; a backup of an encrypted store has the store's key. `restore_backup` restores it.
        """
        from engrain.maintenance.backups import back_up

        return back_up(self.services, Path(path).expanduser(), key)

    @traced
    def doctor(self, scope: Scope | None = None, *, progress: Progress | None = None) -> list[CheckResult]:
        """Run the 35 checks of docs/reference/checklist.md over all memories or one. Nothing is changed.

        Each answer has a state, the reason and the fix.
        """
        from engrain.core.model.results import count_progress
        from engrain.health import CHECKS
        from engrain.health.run_checks import CheckContext, run_checks
        from engrain.maintenance.passes import list_scopes
        from engrain.maintenance.status import read_background_state

        services = self._open.target
        others = list_scopes(services) if scope is None else None
        background = read_background_state(self._open)
        context = CheckContext(services, scope or Scope(), background, others=others, store=self._location)
        return run_checks(CHECKS, context, count_progress(progress, "points", len(CHECKS)))

    @traced
    def rebuild(self, *, progress: Progress | None = None) -> int:
        """Rebuild every index from the stored texts, and return the number of items."""
        from engrain.core.model.results import count_progress
        from engrain.maintenance.embedding import rebuild_indexes

        return rebuild_indexes(self.services, count_progress(progress, "vectors"))

    @traced
    def copy(self, to: PathLike, *, progress: Progress | None = None) -> CopyResult:
        """Copy the whole store to another one, new or partly copied; then read both and compare."""
        from engrain.memory.transfer import copy_store

        return copy_store(self.services, to, progress)

    @traced
    def find_records(self, space: str, prefix: RecordKey, *, tenant: str | None = None) -> list[Scope]:
        """Return the memories of a tenant that have records under a prefix, such as the owner of a thread."""
        from engrain.core.model.records import check_prefix, check_space
        from engrain.tiers.records import require_records

        port = require_records(self.services)
        return port.find(tenant, check_space(space), check_prefix(prefix))

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
        request_id: str | None = None,
    ) -> ErasureResult:
        """Erase everything of a user of a tenant, for every agent.

        It covers every tier, index, journal and server, and the files in `folders`, down to the bytes. A search then
        verifies it, and the answer has a receipt. Names are matched exactly: NotFound if nothing was ever kept of the
        user. OnHold under a legal hold. A dry run changes nothing. A killed erasure continues when the store is next
        opened, or with the next request.
        """
        from engrain.privacy.erase import erase
        from engrain.privacy.erasure_requests import make_user_subject, prepare_erasure, preview_erasure

        subject = make_user_subject(tenant, user)
        if dry_run:
            return preview_erasure(self.services, subject, folders)
        return erase(self.services, prepare_erasure(self.services, subject, folders, request_id), progress)

    @traced
    def undo(
        self,
        source: str,
        *,
        user: str | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
        request_id: str | None = None,
    ) -> UndoResult:
        """Remove the items of one source, such as a poisoned page, and everything derived from them, from one memory.

        Items that they had replaced or corrected are valid again. A dry run only lists them. A repeated `request_id`
        has the first receipt, but no items: they are gone.
        """
        from engrain.privacy.erase import erase
        from engrain.privacy.erasure_requests import prepare_undo, preview_undo

        scope = self.memory(user=user, agent=agent, tenant=tenant).scope
        check_key(source, "source")
        if dry_run:
            return preview_undo(self.services, scope, source)
        found, request = prepare_undo(self.services, scope, source, request_id)
        return replace(found, done=erase(self.services, request, progress)) if request else found

    @traced
    def resume_erasures(self, *, progress: Progress | None = None) -> list[ErasureResult]:
        """Complete every running erasure, also those of other processes."""
        from engrain.core.model.results import stage_progress
        from engrain.privacy.erase import resume_erasures

        return resume_erasures(self.services, stage_progress(progress))

    @traced
    def verify_erasure(
        self, receipt: Receipt | str | bytes, *, texts: Sequence[str] = (), scope: Scope | None = None
    ) -> VerificationResult:
        """Verify an erasure: no row and no file has the data, no server has it, and the audit log has the receipt.

        The files are also searched for `texts`. `beside` of the answer names the servers. If one does not answer, the
        answer is not true. With the erased `scope`, servers are asked for it by name.
        """
        from engrain.privacy.receipts import Receipt, verify_receipt

        parsed = receipt if isinstance(receipt, Receipt) else Receipt.read(receipt)
        return verify_receipt(self.services, parsed, texts, scope or Scope())

    @traced
    def hold(
        self, user: str, *, tenant: str | None = None, reason: str = "legal", request_id: str | None = None
    ) -> Hold:
        """Keep a user's data from being removed until each reason is released.

        A reason is a code word, such as a file number: no content. The answer has no `user` if nothing is kept of them.
        """
        from engrain.privacy.erasure_requests import hold_user, make_user_subject

        return hold_user(self.services, make_user_subject(tenant, user), reason, request_id)

    @traced
    def release(
        self,
        user: str,
        *,
        tenant: str | None = None,
        reason: str | Sequence[str] | None = None,
        request_id: str | None = None,
    ) -> HoldRelease:
        """Release a hold for one reason, several (all or none), or its only one; Conflict if several and none is named.

        With the last reason the hold ends, and data that an erasure had hidden is shown again: `refused` says when the
        erasure was requested. If a reason does not exist, the answer is not true and nothing is changed.
        """
        from engrain.privacy.erasure_requests import make_user_subject, release_user

        return release_user(self.services, make_user_subject(tenant, user), reason, request_id)

    @traced
    def holds(self, *, user: str | None = None, tenant: str | None = None) -> list[Hold]:
        """List every hold of this store, with the user's name if a memory has it; or the hold of one user."""
        from engrain.privacy.erasure_requests import list_holds, make_user_subject

        return list_holds(self.services, None if user is None else make_user_subject(tenant, user))

    @traced
    def audit(
        self, *, user: str | None = None, tenant: str | None = None, after: int | None = None, limit: int = 1_000
    ) -> list[AuditEntry]:
        """List what was removed, moved and held, without content: entries after number `after`, or the newest.

        With a `user`, only entries about the whole user, not about one session or item.
        """
        from engrain.privacy.audit import list_entries
        from engrain.privacy.erasure_requests import make_user_subject

        subject = None if user is None else make_user_subject(tenant, user)
        after = None if after is None else check_count(after, "after", 0, 1 << 60)
        return list_entries(self.services, subject, after, check_count(limit, "limit", 1, 1_000_000))

    @traced
    def verify_audit(self, *, head: str | None = None) -> AuditResult:
        """Find entries of the audit log that were changed, removed, moved or cut off.

        With the `head` of an earlier check (`AuditResult.checkpoint`), kept elsewhere, a replaced log is found as well.
        """
        from engrain.privacy.audit import verify_log

        return verify_log(self.services, head)

    # The store itself

    @property
    def services(self) -> Services:
        """Internal: the ports behind this store, for the packages of engrain."""
        return self._open.services

    @property
    def workers(self) -> Workers:
        """Internal: the background workers of this store, for the packages of engrain and tests."""
        return self._open

    def close(self) -> None:
        """Stop the workers, write what is buffered and close the files. A second call does nothing."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.stop()
            workers.services.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({None if self._location is None else hide_secrets(self._location)!r})"

    @property
    def _open(self) -> Workers:
        if self._workers is None:
            raise StoreClosed("this store was closed. Open it again: Store(…), or Memory(…).")
        return self._workers


def fit_view(memory: Memory, store: Store) -> None:
    """Make a new view fit its store: that of a store on a server speaks HTTP."""
    if type(store) is not Store:
        from engrain.memory.remote import RemoteMemory, RemoteStore

        if isinstance(store, RemoteStore):
            memory.__class__ = RemoteMemory
            assert isinstance(memory, RemoteMemory)
            memory.join(store)


def warm_up_embedder(store: Store) -> None:
    """Load the embedder of a server's store, so that its first request need not wait for the model."""
    try:
        store.services.embedder.embed(["engrain"], "query")
    except EmbedderFailed as exc:
        _log.warning("the embedder does not work: %s", exc)
