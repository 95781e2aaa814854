"""Know whether a with-block is over although its end never ran."""

from __future__ import annotations

import inspect
from types import FrameType

# An exception out of a signal handler can land before the first instruction of any `__exit__` or `finally` that is
# written in Python, so no order of statements alone makes sure that what a block holds is given back. But the frame
# that the block stands in has then ended. Turned down: a thread of our own around every commit (two hops for each
# write), and blocking signals (they reach the process through its other threads).
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def ended(frame: FrameType) -> bool:
    """False for a frame that may still go on; also for one that only stands for a block, as in an ExitStack."""
    if frame.f_code.co_flags & _SUSPENDED or frame.f_globals.get("__name__") == "contextlib":
        return False
    try:
        # The one question to a frame that is answered in one step. It drops the locals of a frame that has ended.
        frame.clear()
    except RuntimeError:
        return False
    return True
