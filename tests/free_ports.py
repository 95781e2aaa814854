"""Ports for the servers of tests: no outgoing connection of this machine takes one, nor another test."""

from __future__ import annotations

import random
import socket
import sys

# Below what systems give to outgoing connections, also with the port 10,000 higher that a Redis of a cluster takes.
_PORTS = range(11_000, 21_000)
_BESIDE = 10_000
_taken: list[socket.socket] = []


def free_port() -> int:
    """A port at which nobody listens, and at the one for its cluster neither: ours until this process ends."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if all(_is_free(one) for one in (port, port + _BESIDE)) and _is_ours(port):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_ours(port: int) -> bool:
    """Whoever takes a port keeps a socket of its name, also while the server is not there: two tests never meet."""
    if sys.platform != "linux":
        return True
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0engrain-tests-{port}")
    except OSError:
        name.close()
        return False
    _taken.append(name)
    return True
