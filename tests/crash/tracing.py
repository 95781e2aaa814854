"""Kill a function's process at one of its system calls, counted over all of its threads, and ask if strace works."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import pytest

# The numbers of system calls that may change a file or its locks.
_NUMBERS = {
    "x86_64": {
        "write": 1, "pwrite64": 18, "fcntl": 72, "fsync": 74, "fdatasync": 75, "ftruncate": 77, "rename": 82,
        "mkdir": 83, "unlink": 87, "openat": 257, "fallocate": 285,
    },
    "aarch64": {
        "write": 64, "pwrite64": 68, "fcntl": 25, "fsync": 82, "fdatasync": 83, "ftruncate": 46, "rename": 38,
        "mkdir": 34, "unlink": 35, "openat": 56, "fallocate": 47,
    },
}.get(platform.machine(), {})  # fmt: skip
CALLS = tuple(_NUMBERS)

_TRACEME, _SYSCALL, _SETOPTIONS, _GET_SYSCALL_INFO = 0, 24, 0x4200, 0x420E
_SYSGOOD, _CLONE, _EXITKILL = 1, 8, 1 << 20
_ENTRY, _ALL_THREADS = 1, 0x40000000
_OWN_FAILURE = 125


class Traced(NamedTuple):
    calls: int  # that were met
    status: int  # as of a process: 0, 1 for an error, or the negative number of the signal that killed it

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


def run_traced(work: Callable[[], object], fatal: int | None = None, calls: Iterable[str] = CALLS) -> Traced:
    """Run work in a process of its own, and kill it at the beginning of a call: the n-th of those named.

    strace counts the calls of each thread on their own, so that it cannot name the point of a program with threads.
    """
    sys.stdout.flush()
    numbers = {_NUMBERS[name] for name in calls}
    read, write = os.pipe()
    tracer = os.fork()
    if tracer == 0:
        try:
            traced = _Tracer(numbers, fatal).run(work)
            os.write(write, f"{traced.calls} {traced.status}".encode())
            os._exit(0)
        finally:
            os._exit(_OWN_FAILURE)
    os.close(write)
    with os.fdopen(read) as told:
        answer = told.read()
    os.waitpid(tracer, 0)
    assert answer, "the tracer failed"
    met, status = answer.split()
    return Traced(int(met), int(status))


class _Tracer:
    """The parent of the process that it traces, with no other child."""

    def __init__(self, numbers: set[int], fatal: int | None) -> None:
        self._numbers, self._fatal, self._met = numbers, fatal, 0
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long

    def run(self, work: Callable[[], object]) -> Traced:
        child = os.fork()
        if child == 0:
            self._play(work)
        os.waitpid(child, 0)
        self._ask(_SETOPTIONS, child, 0, _SYSGOOD | _CLONE | _EXITKILL)
        self._ask(_SYSCALL, child, 0, 0)
        while True:
            thread, status = os.waitpid(-1, _ALL_THREADS)
            if not os.WIFSTOPPED(status):
                if thread == child:
                    return Traced(self._met, os.waitstatus_to_exitcode(status))
                continue
            self._ask(_SYSCALL, thread, 0, self._handle_stop(child, thread, os.WSTOPSIG(status)))

    def _play(self, work: Callable[[], object]) -> None:
        status = 1
        try:
            self._ask(_TRACEME, 0, 0, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            status = 0
        except BaseException as exc:  # noqa: BLE001  # of a child that must not come back
            os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
        finally:
            os._exit(status)

    def _handle_stop(self, child: int, thread: int, number: int) -> int:
        """Return the signal that the thread is to get."""
        if number == signal.SIGTRAP | 0x80:
            if self._begins_call(thread):
                self._met += 1
                if self._met == self._fatal:
                    os.kill(child, signal.SIGKILL)
            return 0
        # A new thread stops, and its maker is told of it: both are ours.
        return 0 if number in (signal.SIGSTOP, signal.SIGTRAP) else number

    def _begins_call(self, thread: int) -> bool:
        info = ctypes.create_string_buffer(96)
        self._ask(_GET_SYSCALL_INFO, thread, len(info), ctypes.addressof(info))
        return info.raw[0] == _ENTRY and int.from_bytes(info.raw[24:32], sys.byteorder) in self._numbers

    def _ask(self, request: int, thread: int, address: int, data: int) -> None:
        """A thread that was killed meanwhile no longer answers."""
        if self._libc.ptrace(request, thread, address, data) < 0 and self._met != self._fatal:
            raise OSError(ctypes.get_errno(), f"ptrace({request})")


@cache
def _may_trace() -> bool:
    return bool(_NUMBERS) and hasattr(os, "fork") and _try(lambda: run_traced(lambda: os.write(1, b""), 1).killed)


def _try(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except (AssertionError, OSError):
        return False


@cache
def _has_strace() -> bool:
    if shutil.which("strace") is None:
        return False
    told = ["-e", "trace=kill", "-e", "inject=kill:signal=KILL:when=1"]
    done = subprocess.run(["strace", "-f", "-qq", "-o", os.devnull, *told, "true"], capture_output=True, check=False)
    return done.returncode == 0


needs_tracing = pytest.mark.skipif(not _may_trace(), reason="the system lets no process trace its child")
needs_strace = pytest.mark.skipif(not _has_strace(), reason="strace is not installed, or may not trace here")
