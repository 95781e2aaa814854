"""Let an object start afresh in a forked child, where a lock may be held for ever by a thread that was left behind."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def after_fork(method: Callable[[], None]) -> None:
    """Call this bound method in every child that is forked while its object lives."""
    if not hasattr(os, "register_at_fork"):
        return
    here = weakref.WeakMethod(method)

    def call() -> None:
        living = here()
        if living is not None:
            living()

    os.register_at_fork(after_in_child=call)
