"""Know when a store was last cared for, so that one wrong reading of the clock removes nothing."""

from __future__ import annotations

import logging
import os
import socket
from datetime import datetime

from engrain.core.errors import EngrainError, LeaseLost, StoreClosed
from engrain.core.ids import SortableIds
from engrain.core.journal import Claim, TaskEnd
from engrain.core.leaps import Seen, following, read, written
from engrain.core.scope import Scope
from engrain.ports import Kit, ListQuery

# Where care leaves its marks, beside every memory: no task of anybody is listed there.
PLACE = Scope(tenant="engrain", agent="maintain")
CLOCK = "clock"
_SECONDS = 10.0

_log = logging.getLogger("engrain")


def seen(kit: Kit, *scopes: Scope) -> Seen:
    """Of a store that was never cared for, when something was last written to one of these memories."""
    record = kit.journal.task(PLACE, CLOCK) if kit.journal else None
    if record is not None:
        return read(record.snapshot)
    newest = (item for scope in scopes for item in kit.items.page(ListQuery(scope, history=True, limit=1)))
    return Seen(max((item.recorded_at for item in newest), default=None))


def note(kit: Kit, before: Seen, now: datetime) -> None:
    """A round was done at this moment. If another process is about to note its own, that is as good."""
    after = following(before, now)
    if kit.journal is None or (after == before and kit.journal.task(PLACE, CLOCK) is not None):
        return
    worker = f"{socket.gethostname()}:{os.getpid()}:{SortableIds()(now)}"
    try:
        lease = kit.journal.claim(Claim(PLACE, CLOCK, worker, _SECONDS, "the moments of care"))
        kit.journal.keep(lease, written(after))
        kit.journal.end(lease, TaskEnd("parked"))
    except StoreClosed:
        raise
    except (EngrainError, LeaseLost) as exc:
        _log.info("the moment of this round is not noted: %s", exc)
