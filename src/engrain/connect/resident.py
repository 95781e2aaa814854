"""Find and stop the resident process of a connected memory."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from engrain.connect.home import ConnectHome
from engrain.core.errors import Conflict, EngrainError
from engrain.ports.plain_files import read_plain_text
from engrain.server.resident import find_place

STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02


def read_pid(home: ConnectHome) -> int | None:
    """The id of the process that serves this memory; None if nobody does. A number of a dead process is not it."""
    if not find_place(home.store).is_locked():
        return None
    with suppress(EngrainError):
        text = read_plain_text(home.pid)
        return int(text) if text.isdigit() else None
    return None


def stop_resident(home: ConnectHome) -> bool:
    """Stop the resident process and wait until it is gone. False if none was running."""
    pid = read_pid(home)
    if pid is None:
        return False
    end = time.monotonic() + STOP_SECONDS
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, kind)
            os.kill(pid, signal.SIGCONT)  # a stopped process acts on a signal only when it goes on
        while time.monotonic() < end:
            if read_pid(home) != pid and not _is_alive(pid):
                return True
            time.sleep(_POLL_SECONDS)
        end += STOP_SECONDS
    raise Conflict(f"process {pid} does not stop: end it by hand.")


def _is_alive(pid: int) -> bool:
    """True if the process runs. One that has ended, but whose parent has not asked for its result, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
