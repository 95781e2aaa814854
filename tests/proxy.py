"""A small proxy on loopback that delays, cuts and swallows what goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal

Direction = Literal["to server", "to client"]
Fate = Literal["pass", "cut", "swallow"]
Judge = Callable[[Direction, bytes], Fate]


class Proxy:
    """Everything passes until `judge` says otherwise; what was swallowed once, is swallowed on that connection."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.judge: Judge = lambda *_: "pass"
        self.delay = 0.0
        self._ends: list[socket.socket] = []
        self._buried: dict[socket.socket, Judge] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Every connection that is open now."""
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)

    def bury(self, judge: Judge) -> None:
        """Every connection that is open now meets this with the next that goes through; new ones pass."""
        self._buried |= dict.fromkeys(self._ends, judge)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._server))
                except OSError:
                    client.close()
                    continue
                self._ends += [client, server]
                for pair in ((client, server, "to server"), (server, client, "to client")):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        silent = False
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                fate = "swallow" if silent else self._buried.get(source, self.judge)(direction, data)
                if fate == "cut":
                    break
                silent = silent or fate == "swallow"
                time.sleep(self.delay)
                if not silent:
                    sink.sendall(data)
        for end in (source, sink):
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
