"""Requests about a user's data: erase, undo, hold, release."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from engrain.core.errors import EngrainError, InvalidInput, NotFound, tolerate
from engrain.core.identity import Scope
from engrain.core.model.erasure import (
    Erasure,
    Hold,
    HoldRelease,
    Impact,
    ReasonChoice,
    Subject,
    find_owner,
    make_hold_error,
)
from engrain.core.model.plans import Applied, make_request
from engrain.core.validation import check_key, suggest_name
from engrain.maintenance.passes import MAINTENANCE_SCOPE, list_scopes
from engrain.mirror.mirror import read_folder_base
from engrain.ports import Services
from engrain.ports.erasure import Erasable
from engrain.ports.storage import Folder
from engrain.privacy.audit import MAX_ENTRIES, list_entries
from engrain.privacy.erase import (
    ErasureRequest,
    ErasureResult,
    UndoResult,
    count_files,
    find_receipt,
    open_folder,
    require_erasing,
)

_HINTS = {
    "session": "List them: engrain sessions.",
    "source": "`engrain explain ID` names the sources of an item.",
    "id": "List items: engrain list.",
}


def make_user_subject(tenant: str | None, name: object) -> Subject:
    """Return the subject of a tenant's user, for all agents."""
    if not isinstance(name, str) or not name:
        raise InvalidInput("user names whose data it is, exactly as it was given to Memory(user=…).")
    return Subject(Scope(tenant, None, name), "user", name)


def make_subject(scope: Scope, **parts: str | None) -> Subject:
    """Return the subject of a session, a source or an item of a scope; without any of them, of the scope's user."""
    named = [(by, name) for by, name in parts.items() if name is not None]
    if len(named) > 1:
        raise InvalidInput("erase takes one of session=, source= and id=, or none of them.")
    if named:
        ((by, name),) = named
        return Subject(scope, by, check_key(name, by))  # type: ignore[arg-type]
    if scope.user is None:
        raise InvalidInput("this memory has no user: erase takes session=, source= or id= here.")
    return make_user_subject(scope.tenant, scope.user)


def prepare_erasure(
    services: Services,
    subject: Subject,
    named: Sequence[str | os.PathLike[str]],
    request_id: str | None = None,
) -> ErasureRequest:
    """Check a request. It continues the running erasure that covers it. The named folders are cleaned too."""
    id = _make_erasure_id(services, subject, request_id)
    if id is not None and _is_known(services, id):
        return ErasureRequest(subject, {}, id)
    folders = _check_folders(named)
    found = require_erasing(services).measure(subject)
    _check_erasable(services, subject, found, [open_folder(services, path) for path in folders])
    notes = {"folders": _list_cleaned(services, found, folders), "named": len(folders)}
    return ErasureRequest(subject, notes, None if id else _find_running(services, subject, found, folders), id)


def _make_erasure_id(services: Services, subject: Subject, request_id: str | None) -> str | None:
    """Make the id of a request's own erasure: the erasure and its receipt record what was requested."""
    if request_id is None:
        return None
    name = f"{subject.name}\x1f{check_key(request_id, 'request_id')}"
    return require_erasing(services).hash_subject(replace(subject, name=name))


def _is_known(services: Services, id: str) -> bool:
    running = any(erasure.id == id for erasure in require_erasing(services).running())
    return running or find_receipt(services, id) is not None


def preview_erasure(services: Services, subject: Subject, named: Sequence[str | os.PathLike[str]]) -> ErasureResult:
    """Count what an erasure would remove. It raises the same errors, but hides nothing and records nothing."""
    folders = _check_folders(named)
    found = require_erasing(services).measure(subject)
    _check_no_hold(services, subject)
    reached = _check_erasable(services, subject, found, [open_folder(services, path) for path in folders])
    cleaned = _list_cleaned(services, found, folders)
    files = sum(count_files(services, open_folder(services, path), subject) for path in cleaned)
    return ErasureResult("", {**found.counts, "files": files}, dry_run=True, memories=reached)


def prepare_undo(
    services: Services, scope: Scope, source: str, request_id: str | None = None
) -> tuple[UndoResult, ErasureRequest | None]:
    """Find everything that came from a source, and everything derived from it. Without any there is no request.

    A repeated request has the first receipt, but no items: they are gone.
    """
    id = _make_erasure_id(services, Subject(scope, "source", source), request_id)
    if id is not None and _is_known(services, id):
        return UndoResult(()), ErasureRequest(Subject(scope, "source", source), {}, id)
    subject, found, undone = _find_source(services, scope, source)
    running = None if id else _find_running(services, subject, found, ())
    if not (found or running):
        return undone, None
    notes = {"undo": {"items": len(undone.items), "kept": len(undone.kept)}}
    return undone, ErasureRequest(subject, notes, running, id)


def preview_undo(services: Services, scope: Scope, source: str) -> UndoResult:
    """Find the same. It raises the same errors as the erasure, but hides nothing and records nothing."""
    subject, found, undone = _find_source(services, scope, source)
    if found:
        _check_no_hold(services, subject)
    return undone


def _find_source(services: Services, scope: Scope, source: str) -> tuple[Subject, Impact, UndoResult]:
    subject = Subject(scope, "source", source)
    found = require_erasing(services).measure(subject)
    items = tuple(services.items.get_many(scope, found.ids))
    return subject, found, UndoResult(items, tuple(services.items.get_many(scope, found.remaining)))


def _check_folders(named: Sequence[str | os.PathLike[str]]) -> list[str]:
    folders = [str(Path(folder).expanduser().absolute()) for folder in named]
    if missing := [path for path in folders if not Path(path).is_dir()]:
        raise InvalidInput(f"there is no folder {missing[0]}. Nothing was erased.")
    return folders


def _list_cleaned(services: Services, found: Impact, folders: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*folders, *_list_mirror_folders(services, found)]))


def _check_erasable(
    services: Services, subject: Subject, found: Impact, folders: Sequence[Folder]
) -> tuple[Scope, ...]:
    """Return the scopes that the erasure reaches."""
    if subject.by == "user":
        server_scopes = _list_server_scopes(services, subject)
        own_folders = _count_own_folders(services, subject, folders)
        if not found and server_scopes == [] and not own_folders:
            _check_user_known(services, subject)
        return tuple(dict.fromkeys([*found.scopes, *(server_scopes or ())]))
    known = _list_running(services, subject) or require_erasing(services).erased(subject)
    if not found and not folders and not known:
        raise NotFound(f"this memory has no data of this {subject.by}. {_HINTS[subject.by]}")
    return found.scopes


def _find_running(services: Services, subject: Subject, found: Impact, folders: Sequence[str]) -> str | None:
    """Return the id of a running erasure that covers all of this already.

    A part of a memory may have new rows once its old rows are deleted, a user once the names are. The running erasure
    may be done with the files, so a folder that it did not start with needs another erasure.
    """
    if _find_hold(services, subject):
        return None
    for erasure in _list_running(services, subject):
        covers_rows = erasure.stage == "blocked" or (erasure.stage == "deleted" and (erasure.by == "user" or not found))
        covers_folders = set(folders) <= {*erasure.notes.get("folders", ())}
        if covers_folders and (covers_rows or not found):
            return erasure.id
    return None


def _check_no_hold(services: Services, subject: Subject) -> None:
    """Raise OnHold like the erasure itself, but hide nothing and record nothing."""
    user = subject if subject.by == "user" else find_owner(subject.scope)
    if user and (hold := _find_hold(services, subject)):
        raise make_hold_error(user, hold.reasons)


def _check_user_known(services: Services, user: Subject) -> None:
    """Raise NotFound for a user who never had data here: a mistyped name gets no receipt."""
    if require_erasing(services).erased(user) or _list_running(services, user) or _find_hold(services, user):
        return
    scopes = list_scopes(services)
    meant = suggest_name(
        user.name, [scope.user for scope in scopes if scope.user and scope.tenant == user.scope.tenant]
    )
    raise NotFound(
        f"there is no user {user.name!r} {_describe_tenant(user, scopes)}.{meant} List the users: engrain memories."
    )


def _list_server_scopes(services: Services, user: Subject) -> list[Scope] | None:
    """List the user's scopes on all servers; None if one does not answer."""
    try:
        return [scope for server in services.servers if isinstance(server, Erasable) for scope in server.scopes(user)]
    except EngrainError:
        return None


def _count_own_folders(services: Services, user: Subject, folders: Sequence[Folder]) -> int:
    """Count the folders that mirror a memory of this user; InvalidInput if one mirrors another user's."""
    scopes = services.items.scopes() if folders else []
    agents = {None, *(scope.agent for scope in scopes)}
    own = {Scope(user.scope.tenant, agent, user.name).id for agent in agents}
    others = {scope.id for scope in scopes} - own
    synced = {folder.path: noted.scope for folder in folders if (noted := read_folder_base(folder))}
    if wrong := [path for path, scope in synced.items() if scope in others]:
        raise InvalidInput(f"{wrong[0]} is the folder of another memory. Nothing was erased.")
    return sum(scope in own for scope in synced.values())


def _list_running(services: Services, subject: Subject) -> list[Erasure]:
    subject_hash = require_erasing(services).hash_subject(subject)
    return [erasure for erasure in require_erasing(services).running() if erasure.subject_hash == subject_hash]


def _find_hold(services: Services, subject: Subject) -> Hold | None:
    user = subject if subject.by == "user" else find_owner(subject.scope)
    subject_hash = require_erasing(services).hash_subject(user) if user else ""
    return next((hold for hold in require_erasing(services).holds() if hold.subject_hash == subject_hash), None)


def _describe_tenant(user: Subject, scopes: Sequence[Scope]) -> str:
    if user.scope.tenant is not None:
        return f"in the tenant {user.scope.tenant!r}"
    return "without a tenant" if any(scope.tenant is not None for scope in scopes) else "in this store"


def _list_mirror_folders(services: Services, found: Impact) -> list[str]:
    """List the configured mirror folders of the erased scopes."""
    own = ((scope, services.folder(scope)) for scope in found.scopes) if services.folder else ()
    return [folder.path for scope, folder in own if (synced := read_folder_base(folder)) and synced.scope == scope.id]


_log = logging.getLogger("engrain")


def hold_user(services: Services, subject: Subject, reason: str, request_id: str | None = None) -> Hold:
    """Put a hold on a user. The result has no name if the store has no data of the user yet."""
    erasing = require_erasing(services)
    request = make_request(request_id, "hold", subject, reason)
    if request is None:
        hold = erasing.hold(subject, reason)
    else:
        do = lambda: Applied(value=_write_hold(erasing.hold(subject, reason)))  # noqa: E731
        hold = _read_hold(*services.items.once(MAINTENANCE_SCOPE, request, do).value)
    known = any(user.parts() == subject.parts() for user in erasing.users())
    # A repeated request must not start a hold again that was released since.
    current = hold.subject_hash in {current.subject_hash for current in erasing.holds()}
    for server in services.servers:
        if isinstance(server, Erasable) and current:
            late = partial(_log.warning, "%s starts the hold only with the next maintenance: %s", server.where)
            with tolerate(EngrainError, report=late):
                server.hold(subject)
                known = known or bool(server.scopes(subject))
    return replace(hold, tenant=subject.scope.tenant, user=subject.name) if known else hold


def _write_hold(hold: Hold) -> list[Any]:
    return [hold.subject_hash, hold.at.isoformat(), list(hold.reasons), hold.hidden]


def _read_hold(subject_hash: str, at: str, reasons: list[str], hidden: bool) -> Hold:
    return Hold(subject_hash, datetime.fromisoformat(at), tuple(reasons), hidden)


def release_user(
    services: Services, subject: Subject, reason: ReasonChoice, request_id: str | None = None
) -> HoldRelease:
    """Release one or several reasons. The last one ends the hold."""

    def do() -> Applied:
        done = _release(services, subject, reason)
        return Applied(value=[done.done, list(done.left), done.refused and done.refused.isoformat()])

    request = make_request(request_id, "release", subject, reason)
    done, left, refused = services.items.once(MAINTENANCE_SCOPE, request, do).value
    return HoldRelease(done, tuple(left), refused and datetime.fromisoformat(refused))


def _release(services: Services, subject: Subject, reason: ReasonChoice) -> HoldRelease:
    before = next(iter(list_holds(services, subject)), None)
    done = require_erasing(services).release(subject, reason)
    left = tuple(reason for hold in list_holds(services, subject) for reason in hold.reasons)
    refused = []
    if before is not None and before.hidden and not left:
        refused = [
            entry.at for entry in list_entries(services, subject, 0, MAX_ENTRIES) if entry.what == "erase_refused"
        ]
    return HoldRelease(done, left, refused[-1] if refused else None)


def list_holds(services: Services, subject: Subject | None = None) -> list[Hold]:
    """List all holds, or that of one user. A hold has the user's name if a memory still has it."""
    erasing = require_erasing(services)
    found = erasing.holds()
    users = [subject] if subject is not None else _list_users(services) if found else []
    known = {erasing.hash_subject(user): user for user in users}
    named = [
        replace(hold, tenant=user.scope.tenant, user=user.name) if (user := known.get(hold.subject_hash)) else hold
        for hold in found
    ]
    return named if subject is None else [hold for hold in named if hold.subject_hash in known]


def find_hold(services: Services, scope: Scope) -> Hold | None:
    """Return the hold on the user of a scope."""
    if services.erasing is None or scope.user is None:
        return None
    return next(iter(list_holds(services, find_owner(scope))), None)


def _list_users(services: Services) -> list[Subject]:
    """List all users, also those that only a server knows. A server that does not answer names none."""
    scopes: list[Scope] = []
    for server in services.servers:
        if isinstance(server, Erasable):
            with suppress(EngrainError):
                scopes += server.known()
    return [*require_erasing(services).users(), *(user for user in map(find_owner, scopes) if user)]
