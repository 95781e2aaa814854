"""Erase, undo, hold, and the record of it: a few lines each."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from engrain.core.errors import ConfigError, EngrainError, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult, compare_with_kept, parse_kept_head
from engrain.core.model.erasure import Hold, HoldRelease, Impact, ReasonChoice, Subject, find_owner
from engrain.engine.parts import Parts
from engrain.ports import AuditLog, Erasable
from engrain.privacy.audit import list_newest, record
from engrain.privacy.checks import check_erasable, check_no_hold, find_running, read_base
from engrain.privacy.erase import (
    ErasureResult,
    Report,
    UndoResult,
    erase,
    open_folder,
    require_erasing,
    resume_erasures,
)
from engrain.privacy.files import count_files
from engrain.privacy.receipts import Receipt, VerificationResult, verify_receipt

_ALL = 1_000_000
_log = logging.getLogger("engrain")


class Erasures(Parts):
    def erase(self, subject: Subject, folders: Sequence[str], dry_run: bool, report: Report) -> ErasureResult:
        found = require_erasing(self.services).reach(subject)
        reached = check_erasable(
            self.services, subject, found, [open_folder(self.services, path) for path in folders], dry_run
        )
        cleaned = list(dict.fromkeys([*folders, *self._mirrored(found)]))
        if dry_run:
            files = sum(count_files(self.services, open_folder(self.services, path), subject) for path in cleaned)
            return ErasureResult("", {**found.counts, "files": files}, dry_run=True, memories=reached)
        notes = {"folders": cleaned, "named": len(folders)}
        id = find_running(self.services, subject, found, folders)
        return erase(self.services, subject, notes, report, id)

    def undo(self, source: str, dry_run: bool, report: Report) -> UndoResult:
        subject = Subject(self.scope, "source", source)
        found = require_erasing(self.services).reach(subject)
        items = tuple(self.services.items.get_many(self.scope, found.ids))
        kept = tuple(self.services.items.get_many(self.scope, found.kept))
        if dry_run and found:
            check_no_hold(self.services, subject)
        id = None if dry_run else find_running(self.services, subject, found, ())
        if dry_run or not (found or id):
            return UndoResult(items, kept, None)
        notes = {"undo": {"items": len(items), "kept": len(kept)}}
        return UndoResult(items, kept, erase(self.services, subject, notes, report, id))

    def resume_erasures(self, report: Report) -> builtins.list[ErasureResult]:
        return resume_erasures(self.services, report)

    def go_on(self) -> None:
        """What a killed process left undone is completed beside, as soon as a memory is opened; one that does nothing
        in the background says that it is to be done."""
        if self.services.erasing is None or not self.services.erasing.running():
            return
        if not self.background:
            _log.warning("an erasure is not complete yet. Complete it: engrain erase --resume, or resume_erasures().")
            return
        threading.Thread(target=self._go_on, name="engrain-erase", daemon=True).start()

    def _go_on(self) -> None:
        try:
            self.resume_erasures(_log.info)
        except EngrainError as exc:
            _log.warning("an erasure is still to be completed: %s", exc)

    def verify_erasure(self, receipt: Receipt, texts: Sequence[str]) -> VerificationResult:
        return verify_receipt(self.services, receipt, texts, self.scope)

    def hold(self, user: str, reason: str) -> Hold:
        subject = self.user(user)
        held = require_erasing(self.services).hold(subject, reason)
        beside = False
        for server in self.services.servers:
            if isinstance(server, Erasable):
                try:
                    server.hold(subject)
                    beside = beside or bool(server.scopes(subject))
                except EngrainError as exc:
                    _log.warning("%s holds on to it only from the next maintain on: %s", server.where, exc)
        known = beside or any(one.parts() == subject.parts() for one in require_erasing(self.services).users())
        return replace(held, tenant=self.scope.tenant, user=user) if known else held

    def release(self, user: str, reason: ReasonChoice) -> HoldRelease:
        held = next(iter(self.holds(user)), None)
        done = require_erasing(self.services).release(self.user(user), reason)
        left = tuple(one for hold in self.holds(user) for one in hold.reasons)
        hidden = held is not None and held.hidden and not left
        asked = [one.at for one in self.audit(user, 0, _ALL) if one.what == "erase_refused"] if hidden else []
        return HoldRelease(done, left, asked[-1] if asked else None)

    def holds(self, user: str | None) -> builtins.list[Hold]:
        """All, or that of one user."""
        erasing = require_erasing(self.services)
        found = erasing.holds()
        users = [self.user(user)] if user is not None else self._everybody() if found else []
        known = {erasing.mark(one): one for one in users}
        named = [
            replace(one, tenant=known[one.mark].scope.tenant, user=known[one.mark].name) if one.mark in known else one
            for one in found
        ]
        return named if user is None else [one for one in named if one.mark in known]

    def _everybody(self) -> builtins.list[Subject]:
        """Also those whom only a server beside knows; one that does not answer names nobody."""
        scopes: builtins.list[Scope] = []
        for server in self.services.servers:
            if isinstance(server, Erasable):
                with suppress(EngrainError):
                    scopes += server.known()
        return [*require_erasing(self.services).users(), *(user for user in map(find_owner, scopes) if user)]

    def user(self, name: str) -> Subject:
        """Of this tenant, whatever the agent."""
        if not isinstance(name, str) or not name:
            raise InvalidInput("user names whose data it is, exactly as it was given to Memory(user=…).")
        return Subject(Scope(self.scope.tenant, None, name), "user", name)

    def audit(self, user: str | None, after: int | None, limit: int) -> builtins.list[AuditEntry]:
        if user is not None:
            mark = require_erasing(self.services).mark(self.user(user))
            found = [one for one in self._log().entries(after or 0, _ALL) if one.subject == mark]
            return found[-limit:] if after is None else found[:limit]
        return list_newest(self._log(), limit) if after is None else self._log().entries(after, limit)

    def verify_audit(self, head: str | None) -> AuditResult:
        n, hash = parse_kept_head(head) if head is not None else (0, "")
        log = self._log()
        return compare_with_kept(log.verify(), n, hash, next(iter(log.entries(n - 1, 1)), None))

    def record(self, what: str, details: Mapping[str, Any]) -> None:
        record(self.services, what, details, self.scope)

    def _log(self) -> AuditLog:
        if self.services.audit is None:
            raise ConfigError("this store keeps no audit log. Use a path such as agent.db, or postgresql://….")
        return self.services.audit

    def _mirrored(self, found: Impact) -> builtins.list[str]:
        """The folders of the settings that are kept in step with a scope that is erased."""
        own = ((scope, self.services.folder(scope)) for scope in found.scopes) if self.services.folder else ()
        return [folder.path for scope, folder in own if (synced := read_base(folder)) and synced.scope == scope.id]
