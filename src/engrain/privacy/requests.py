"""What is asked for somebody's data: erase it, take a source back, hold it, and read the record of that."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from engrain.core.errors import ConfigError, EngrainError, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult, compare_with_kept, parse_kept_head
from engrain.core.model.erasure import Hold, HoldRelease, Impact, ReasonChoice, Subject, find_owner
from engrain.core.progress import Progress, stage_progress
from engrain.core.validation import check_key
from engrain.ports import AuditLog, Erasable, Services
from engrain.privacy.audit import list_newest
from engrain.privacy.checks import check_erasable, check_no_hold, find_running, read_folder_base
from engrain.privacy.erase import ErasureResult, UndoResult, erase, open_folder, require_erasing
from engrain.privacy.files import count_files

_ALL = 1_000_000
_log = logging.getLogger("engrain")


def user_subject(tenant: str | None, name: object) -> Subject:
    """A user of a tenant, whatever the agent."""
    if not isinstance(name, str) or not name:
        raise InvalidInput("user names whose data it is, exactly as it was given to Memory(user=…).")
    return Subject(Scope(tenant, None, name), "user", name)


def subject_of(scope: Scope, **parts: str | None) -> Subject:
    """A session, a source or an item of a scope; without any of them, the scope's user."""
    given = [(by, name) for by, name in parts.items() if name is not None]
    if len(given) > 1:
        raise InvalidInput("erase takes one of session=, source= and id=, or none of them.")
    if given:
        ((by, name),) = given
        return Subject(scope, by, check_key(name, by))  # type: ignore[arg-type]
    if scope.user is None:
        raise InvalidInput("this memory has no user: erase takes session=, source= or id= here.")
    return user_subject(scope.tenant, scope.user)


def erase_subject(
    services: Services,
    subject: Subject,
    named: Sequence[str | os.PathLike[str]],
    dry_run: bool,
    progress: Progress | None,
) -> ErasureResult:
    """Begin an erasure, or go on with the one that takes all of this already. The folders that are named are cleaned
    as well."""
    folders = [str(Path(one).expanduser().absolute()) for one in named]
    if missing := [path for path in folders if not Path(path).is_dir()]:
        raise InvalidInput(f"there is no folder {missing[0]}. Nothing was erased.")
    found = require_erasing(services).reach(subject)
    reached = check_erasable(services, subject, found, [open_folder(services, path) for path in folders], dry_run)
    cleaned = list(dict.fromkeys([*folders, *_mirrored(services, found)]))
    if dry_run:
        files = sum(count_files(services, open_folder(services, path), subject) for path in cleaned)
        return ErasureResult("", {**found.counts, "files": files}, dry_run=True, memories=reached)
    notes = {"folders": cleaned, "named": len(folders)}
    running = find_running(services, subject, found, folders)
    return erase(services, subject, notes, stage_progress(progress), running)


def undo_source(services: Services, scope: Scope, source: str, dry_run: bool, progress: Progress | None) -> UndoResult:
    """Take back what came from a source, with all it led to."""
    subject = Subject(scope, "source", source)
    found = require_erasing(services).reach(subject)
    items = tuple(services.items.get_many(scope, found.ids))
    stays = tuple(services.items.get_many(scope, found.kept))
    if dry_run and found:
        check_no_hold(services, subject)
    id = None if dry_run else find_running(services, subject, found, ())
    if dry_run or not (found or id):
        return UndoResult(items, stays, None)
    notes = {"undo": {"items": len(items), "kept": len(stays)}}
    return UndoResult(items, stays, erase(services, subject, notes, stage_progress(progress), id))


def hold_user(services: Services, subject: Subject, reason: str) -> Hold:
    """The answer names no user if nothing is kept of them yet."""
    held = require_erasing(services).hold(subject, reason)
    known = any(one.parts() == subject.parts() for one in require_erasing(services).users())
    for server in services.servers:
        if isinstance(server, Erasable):
            try:
                server.hold(subject)
                known = known or bool(server.scopes(subject))
            except EngrainError as exc:
                _log.warning("%s holds on to it only from the next maintain on: %s", server.where, exc)
    return replace(held, tenant=subject.scope.tenant, user=subject.name) if known else held


def release_user(services: Services, subject: Subject, reason: ReasonChoice) -> HoldRelease:
    """End a reason, or several; with the last one the hold."""
    held = next(iter(list_holds(services, subject)), None)
    done = require_erasing(services).release(subject, reason)
    left = tuple(one for hold in list_holds(services, subject) for one in hold.reasons)
    refused = []
    if held is not None and held.hidden and not left:
        refused = [one.at for one in list_entries(services, subject, 0, _ALL) if one.what == "erase_refused"]
    return HoldRelease(done, left, refused[-1] if refused else None)


def list_holds(services: Services, subject: Subject | None = None) -> list[Hold]:
    """All, by name where a memory says it; or that of one user."""
    erasing = require_erasing(services)
    found = erasing.holds()
    users = [subject] if subject is not None else _everybody(services) if found else []
    known = {erasing.mark(one): one for one in users}
    named = [
        replace(one, tenant=known[one.mark].scope.tenant, user=known[one.mark].name) if one.mark in known else one
        for one in found
    ]
    return named if subject is None else [one for one in named if one.mark in known]


def find_hold(services: Services, scope: Scope) -> Hold | None:
    """The hold on the user whose scope it is."""
    if services.erasing is None or scope.user is None:
        return None
    return next(iter(list_holds(services, user_subject(scope.tenant, scope.user))), None)


def list_entries(services: Services, subject: Subject | None, after: int | None, limit: int) -> list[AuditEntry]:
    """Entries of the audit log above a number, or the newest; of one subject if it is named."""
    log = audit_log(services)
    if subject is not None:
        mark = require_erasing(services).mark(subject)
        found = [one for one in log.entries(after or 0, _ALL) if one.subject == mark]
        return found[-limit:] if after is None else found[:limit]
    return list_newest(log, limit) if after is None else log.entries(after, limit)


def verify_log(services: Services, head: str | None) -> AuditResult:
    """Find an entry that was changed, removed, moved or cut off; with a head, also a log that was put back."""
    n, hash = parse_kept_head(head) if head is not None else (0, "")
    log = audit_log(services)
    return compare_with_kept(log.verify(), n, hash, next(iter(log.entries(n - 1, 1)), None))


def audit_log(services: Services) -> AuditLog:
    if services.audit is None:
        raise ConfigError("this store keeps no audit log. Use a path such as agent.db, or postgresql://….")
    return services.audit


def _everybody(services: Services) -> list[Subject]:
    """Also those whom only a server beside knows; one that does not answer names nobody."""
    scopes: list[Scope] = []
    for server in services.servers:
        if isinstance(server, Erasable):
            with suppress(EngrainError):
                scopes += server.known()
    return [*require_erasing(services).users(), *(user for user in map(find_owner, scopes) if user)]


def _mirrored(services: Services, found: Impact) -> list[str]:
    """The folders of the settings that are kept in step with a scope that is erased."""
    own = ((scope, services.folder(scope)) for scope in found.scopes) if services.folder else ()
    return [folder.path for scope, folder in own if (synced := read_folder_base(folder)) and synced.scope == scope.id]
