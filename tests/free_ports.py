"""Ports for the servers of tests, from where no outgoing connection of this machine takes one."""

from __future__ import annotations

import random
import socket

# Below what systems give to outgoing connections, also with the port 10,000 higher that a Redis of a cluster takes.
_PORTS = range(11_000, 22_000)
_BESIDE = 10_000


def free_port() -> int:
    """A port at which nobody listens, and at the one for its cluster neither."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if all(_is_free(one) for one in (port, port + _BESIDE)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
