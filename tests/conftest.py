"""Every test runs with the network closed, no key set, and the settings of the machine out of sight."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import tempfile
import threading
from typing import Any

import pytest
from counting import pytest_terminal_summary, report_counts  # noqa: F401
from forked import die_with_parent
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background hands them an ignored SIGINT, which every child would inherit.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("ENGRAIN_")]:
    del os.environ[name]
# Hundreds of programs are started by tests: they compile our modules once, and not each of them anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Several workers share the cores: threads of numpy that wait for each other would cost more than they save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# No test leaves this machine: a folder without certificates spares every client of httpx 27 ms for 140 of them.
os.environ["SSL_CERT_DIR"] = os.path.dirname(__file__)

# Files in memory, where there is room for them: a commit then waits for no disk. TMPDIR names another folder.
IN_MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 2 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = IN_MEMORY

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=die_with_parent)


def pytest_configure(config: pytest.Config) -> None:
    """By default the same examples every time, so that a failure is of a change and not of luck; the longer suites,
    and whoever runs single files, try new ones. How long one takes is a matter of what else the machine does."""
    same = config.getoption("markexpr") == "not slow"
    settings.register_profile(
        "engrain",
        deadline=None,
        derandomize=same,
        max_examples=10 if same else 100,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.load_profile("engrain")
    gc.disable()  # collecting tests makes half a million objects, none of which goes


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Leave slow classes and functions out before their items are made: they are more than half of all."""
    if collector.config.getoption("markexpr") != "not slow" or not name.lower().startswith("test"):
        return None
    marks = getattr(obj, "pytestmark", [])
    marked = any(mark.name == "slow" for mark in (marks if isinstance(marks, list) else [marks]))
    return [] if marked or collector.get_closest_marker("slow") else None


def pytest_collection_finish() -> None:
    """Later collections of garbage, and children of a fork, leave the collected tests alone."""
    gc.freeze()
    gc.enable()


_connect = socket.socket.connect


def _only_loopback(self: socket.socket, address: Any) -> None:
    host = address[0] if isinstance(address, tuple) else None
    if host is not None and not str(host).startswith("127.") and host not in ("localhost", "::1"):
        raise AssertionError(f"a test tried to reach {host}: the network is closed")
    _connect(self, address)


# Once a process: a fixture would be set up and torn down for each of six thousand tests.
socket.socket.connect = _only_loopback  # type: ignore[method-assign]
