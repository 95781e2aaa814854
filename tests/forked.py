"""Run a function in a forked child, which has our modules, and wait for it no longer than a limit.

A child may hang: a fork of a process with threads keeps locked what one of them had locked. And a child keeps every
pipe of its parent open. A worker of pytest-xdist that ends while its child hangs is never missed by the controller,
which then waits for ever. So every wait has a limit, and a child ends together with its parent.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import multiprocessing
import multiprocessing.util  # its atexit function runs after ours
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess

LIMIT = 120.0  # seconds
STACKS = signal.SIGUSR2
_PR_SET_PDEATHSIG = 1
_POLLED = 0.005
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def start_forked(work: Callable[..., object], *values: object) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(work, *values), daemon=True)
    process.start()
    return process


def _run(work: Callable[..., object], *values: object) -> None:
    _prepare_child()
    work(*values)


def run_forked(work: Callable[..., object], *values: object) -> int | None:
    """Return how it ended: 0, 1 for an error, or the negative number of the signal that killed it."""
    return join_forked(start_forked(work, *values))


def join_forked(process: BaseProcess, seconds: float = LIMIT) -> int | None:
    """Wait for the end of a child, and return it. One that takes too long prints its stacks, is killed, and fails."""
    process.join(seconds)
    if process.exitcode is None:
        _print_stacks(process.pid)
        end_forked(process)
        raise AssertionError(f"the forked {process.name} did not end within {seconds:g} s, and was killed.")
    return process.exitcode


def end_forked(process: BaseProcess) -> None:
    """Kill a child, and wait until it is gone."""
    process.kill()
    process.join(LIMIT)
    assert process.exitcode is not None, f"{process.name} was killed and did not end within {LIMIT} s."


def fork_child(work: Callable[[], object]) -> int:
    """Run a function in a forked child, and return the child's process id at once. An error prints its traceback.

    Unlike `start_forked` nothing of multiprocessing runs in the child.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        _prepare_child()
        work()
        os._exit(0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        os._exit(1)


def wait_for_child(child: int, seconds: float = LIMIT) -> int:
    """Wait for the end of a child, and return it as `run_forked` does. One that takes too long is killed, and fails."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(_POLLED)
    _print_stacks(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # a killed process ends
    raise AssertionError(f"the forked child {child} did not end within {seconds:g} s, and was killed.")


def die_with_parent() -> None:
    """End this child when its parent ends. conftest.py calls it after each fork."""
    if _prctl:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare_child() -> None:
    faulthandler.register(STACKS, file=sys.__stderr__, all_threads=True)


def _print_stacks(pid: int | None) -> None:
    """Let a child that hangs print the stacks of its threads, so that the test's log says where."""
    if pid:
        os.kill(pid, STACKS)
        time.sleep(1)


@atexit.register
def _kill_left_children() -> None:
    """Python itself asks them to end and waits. One that is stopped by a signal never would."""
    for child in multiprocessing.active_children():
        child.kill()
