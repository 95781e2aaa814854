"""Put a legal hold on a user's data, release it, and list the holds."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from engrain.core.errors import EngrainError, tolerate
from engrain.core.identity import Scope
from engrain.core.model.erasure import Hold, HoldRelease, ReasonChoice, Subject, find_owner
from engrain.core.model.plans import Applied, make_request
from engrain.maintenance.passes import MAINTENANCE_SCOPE
from engrain.ports import Services
from engrain.ports.erasure import Erasable
from engrain.privacy.audit import MAX_ENTRIES, list_entries
from engrain.privacy.erase import require_erasing

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
