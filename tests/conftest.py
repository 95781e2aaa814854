"""Every test runs with the network closed, no key set, and the settings of the machine out of sight."""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is a matter of what else the machine does.
settings.register_profile("engrain", deadline=None)
settings.load_profile("engrain")

# A shell that starts the tests in the background hands them an ignored SIGINT, which every child would inherit.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

for name in [name for name in os.environ if name.endswith("_API_KEY") or name.startswith("ENGRAIN_")]:
    del os.environ[name]

_connect = socket.socket.connect


def _only_loopback(self: socket.socket, address: Any) -> None:
    host = address[0] if isinstance(address, tuple) else None
    if host is not None and not str(host).startswith("127.") and host not in ("localhost", "::1"):
        raise AssertionError(f"a test tried to reach {host}: the network is closed")
    _connect(self, address)


@pytest.fixture(autouse=True)
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _only_loopback)
