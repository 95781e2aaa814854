"""Find, start and stop the resident process of a connected memory."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engrain.connect.home import ConnectHome
from engrain.core.errors import Conflict

STOP_SECONDS = 5.0


@contextmanager
def hold_lock(home: ConnectHome) -> Iterator[bool]:
    """Hold the lock of the resident process; False if another process has it. The file names the process."""
    handle = os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield True
    finally:
        os.close(handle)


def read_pid(home: ConnectHome) -> int | None:
    """The id of the process that holds the lock; None if nobody does. A number left by a dead process is not it."""
    try:
        handle = os.open(home.lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(handle, 32, 0)
        return int(text) if text.isdigit() else None
    finally:
        os.close(handle)
    return None


def stop_resident(home: ConnectHome) -> bool:
    """Stop the resident process and wait until it is gone. False if none was running."""
    pid = read_pid(home)
    if pid is None:
        return False
    end = time.monotonic() + STOP_SECONDS
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            # A stopped process takes no signal but these two.
            os.kill(pid, kind)
            os.kill(pid, signal.SIGCONT)
        while time.monotonic() < end:
            if read_pid(home) != pid:
                return True
            time.sleep(0.02)
        end += STOP_SECONDS
    raise Conflict(f"process {pid} does not stop: end it by hand.")
