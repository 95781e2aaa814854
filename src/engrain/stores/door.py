"""Know in a store beside the items whose data is held, hidden or being erased."""

from __future__ import annotations

import time

from engrain.core.erasure import SETTLED, owner
from engrain.core.errors import BeingErased, EngrainError, OnHold
from engrain.core.holds import refusal
from engrain.core.scope import Scope
from engrain.ports import Erasing

# Seconds for which an open scope is not asked about again: less than an erasure waits before it looks the last time.
_KNOWN = SETTLED / 2
_MOST = 10_000


class Door:
    """As the store of the items has it, which alone is told; without one that can erase, it is open to all."""

    def __init__(self, erasing: Erasing | None = None) -> None:
        self._erasing = erasing
        self._open: dict[Scope, float] = {}

    def held(self, scope: Scope) -> bool:
        return self._erasing is not None and self._erasing.held(scope)

    def check_held(self, scope: Scope) -> None:
        user = owner(scope)
        if user and self.held(scope):
            raise refusal(user)

    def holds(self) -> bool:
        """Whether there is a hold on anybody."""
        return self._erasing is not None and bool(self._erasing.holds())

    def lately_shut(self, scope: Scope) -> EngrainError | None:
        """As `shut` was a moment ago: for what is asked often."""
        if self._open.get(scope, 0.0) > time.monotonic():
            return None
        found = self.shut(scope)
        if found is None:
            if len(self._open) >= _MOST:
                self._open.clear()
            self._open[scope] = time.monotonic() + _KNOWN
        return found

    def shut(self, scope: Scope) -> EngrainError | None:
        """Why nothing of a scope is shown or written."""
        user = owner(scope)
        if self._erasing is None or user is None:
            return None
        mark = self._erasing.mark(user)
        if any(one.mark == mark and one.stage != "named" for one in self._erasing.running()):
            return BeingErased(
                "this user's memory is being erased. Write again when that is done: engrain erase --resume."
            )
        if any(one.mark == mark and one.hidden for one in self._erasing.holds()):
            return OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
        return None
