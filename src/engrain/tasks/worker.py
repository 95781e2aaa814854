"""Who runs a task, and whether that process can still be alive."""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


def worker_name() -> str:
    """New for every run: host, process and a random part; where the system tells, which boot, which pid space and when
    the process began, so that another worker can be sure of its death."""
    pid = os.getpid()
    return "/".join([_host(), _space(), str(pid), _began(pid) or "", secrets.token_hex(4)])


def is_dead(worker: str) -> bool:
    """Whether its process has certainly ended. A worker of another machine or container may always be alive."""
    host, _, rest = worker.rpartition("/")[0].partition("/")
    space, _, process = rest.partition("/")
    pid, _, began = process.partition("/")
    if not space or not began or not pid.isdigit() or (host, space) != (_host(), _space()):
        return False
    return _began(int(pid)) != began


@cache
def _host() -> str:
    return socket.gethostname().replace("/", "-")


@cache
def _space() -> str:
    """The boot and the pid namespace: a pid means something only there. "" where the system has no such thing."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}.{os.readlink(_PROC / 'self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When the process began, in ticks since the boot; None if there is none, or only its unclaimed remains."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
