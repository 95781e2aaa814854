"""Keep working memory outside the process, so that the next one that continues the session has it."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput, StoreError
from engrain.core.identity import Scope
from engrain.ingest.write import redact_json
from engrain.ports import SessionState
from engrain.ports.sessions import WORKING
from engrain.tiers.working import WorkingMemory

if TYPE_CHECKING:
    from engrain.core.secrets.redact import RedactFunction

_log = logging.getLogger("engrain")
_EMPTY = WorkingMemory().snapshot()


class Snapshots:
    """The whole of working memory, after every change. A server that does not answer stops nobody."""

    def __init__(self, state: SessionState, scope: Scope, redact: RedactFunction | None = None) -> None:
        self._state = state
        self._redact = redact
        self._scope = scope
        self._turn = threading.Lock()  # what is kept last is what was so last

    def keep(self, session: str, working: WorkingMemory) -> None:
        with self._turn:
            snapshot = redact_json(working.snapshot(), self._redact)
            try:
                if snapshot == _EMPTY:
                    self._state.drop(self._scope, session, WORKING)
                else:
                    self._state.keep(self._scope, session, WORKING, json.dumps(snapshot))
            except StoreError as exc:
                _log.warning("working memory is in this process alone: %s", exc)

    def restore(self, session: str, working: WorkingMemory) -> bool:
        """What the session had at hand; False if it had nothing, or if there is something here already."""
        if working.snapshot() != _EMPTY:
            return False
        try:
            kept = self._state.kept(self._scope, session, WORKING)
            if kept is None:
                return False
            working.load(json.loads(kept))
        except (StoreError, InvalidInput, ValueError) as exc:
            _log.warning("the session begins with an empty working memory: %s", exc)
            return False
        return True
