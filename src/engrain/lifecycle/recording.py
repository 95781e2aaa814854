"""Write what was done with a memory as a whole to the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engrain.core.audit import Entry
from engrain.core.erasure import owner
from engrain.core.errors import ReadOnlyStore
from engrain.core.scope import Scope
from engrain.ports import Kit


def record(kit: Kit, what: str, details: Mapping[str, Any], scope: Scope | None = None) -> Entry | None:
    """`scope` is whose memory it was; its user stands there as a keyed hash. A store that is opened to be read, or has
    no log, records nothing."""
    if kit.audit is None:
        return None
    user = owner(scope) if scope else None
    subject = kit.erasing.mark(user) if user and kit.erasing else None
    try:
        return kit.audit.append(what, details, subject)
    except ReadOnlyStore:
        return None
