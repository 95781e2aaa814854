"""Load on `engrain serve`: 50 clients of 50 users send texts to remember, next to the same server's hello.

    python bench/serve_load.py [--seconds 10] [--rounds 3] [--servers uvicorn,granian] [--limit 20]

A server runs in a process of its own, over a store on disk with vectors that cost nothing; each POST is durable when it
is answered. The clients speak HTTP over 50 kept connections from another process. Each round asks every server for both
pages. `--limit` gives one more run, with keys of that many requests a second: what is beyond gets 429 and never waits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLIENTS = 50
WARM_UP_SECONDS = 1.0
HELLO, REMEMBER = "hello", "remember"


def build_request(what: str, user: str, number: int, key: str) -> bytes:
    if what == HELLO:
        return b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    body = json.dumps({"text": f"Parcel {number} of {user} came on day {number % 31}."}).encode()
    who = f"Authorization: Bearer {key}\r\n" if key else f"Engrain-User: {user}\r\n"
    head = f"POST /v1/remember HTTP/1.1\r\nHost: localhost\r\n{who}Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Load:
    """The answers to all clients: their times in seconds, and how many had each status."""

    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    async def run(self, what: str, port: int, seconds: float, keys: list[str]) -> None:
        ends = time.perf_counter() + seconds
        await asyncio.gather(*(self._send(what, port, client, ends, keys) for client in range(CLIENTS)))

    async def _send(self, what: str, port: int, client: int, ends: float, keys: list[str]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number, began, key = 0, time.perf_counter(), keys[client] if keys else ""
        while began < ends:
            number += 1
            writer.write(build_request(what, f"user-{client}", time.time_ns(), key))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            now = time.perf_counter()
            self.statuses[int(head[9:12])] += 1
            self.times.append(now - began)
            began = now
        writer.close()


def send_load(what: str, port: int, seconds: float, keys: list[str]) -> dict[str, Any]:
    load = Load()
    began = time.perf_counter()
    asyncio.run(load.run(what, port, seconds, keys))
    took = time.perf_counter() - began
    ordered = sorted(load.times)
    return {
        "a second": len(ordered) / took,
        "p50 ms": ordered[len(ordered) // 2] * 1e3,
        "p99 ms": ordered[len(ordered) * 99 // 100] * 1e3,
        "longest ms": ordered[-1] * 1e3,
        "answers": dict(load.statuses),
    }


# The server


def serve(server: str, folder: str, limit: float | None) -> None:
    from views import Stub

    from engrain import Store
    from engrain.server.access import Access, OpenAccess
    from engrain.server.app import HttpApi
    from engrain.server.keys import ApiKey, KeyFile, KeyLimits

    keys: list[str] = []
    access = Access(None, OpenAccess())
    if limit is not None:
        file = KeyFile(Path(folder) / "keys.json")
        limits = KeyLimits(limit)
        names = [f"user-{number}" for number in range(CLIENTS)]
        keys = [file.add(ApiKey("", name, "", ("write",), user=name, limits=limits)) for name in names]
        access = Access(file)
    with Store(Path(folder) / "load.db", embedder=Stub(), background=False) as store:
        {"uvicorn": run_uvicorn, "granian": run_granian}[server](HttpApi(store, access), keys)


def announce(port: int, keys: list[str]) -> None:
    sys.stdout.write(json.dumps({"port": port, "keys": keys}) + "\n")
    sys.stdout.flush()


def run_uvicorn(api: Any, keys: list[str]) -> None:
    from engrain.server.serve import ApiServer, listen_tcp

    listener = listen_tcp("127.0.0.1", 0)
    announce(int(listener.address.rpartition(":")[2]), keys)
    ApiServer(api).serve_until_stopped(listener)


def run_granian(api: Any, keys: list[str]) -> None:
    from granian.constants import Interfaces
    from granian.server.embed import Server

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def run() -> None:
        server = Server(api, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_access=False)
        announce(port, keys)
        await server.serve()

    asyncio.run(run())


class RunningServer:
    def __init__(self, server: str, folder: Path, limit: float | None = None) -> None:
        folder.mkdir()
        arguments = [sys.executable, __file__, "--serve", server, "--folder", str(folder)]
        arguments += [] if limit is None else ["--limit", str(limit)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.port, self.keys = ready["port"], ready["keys"]
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.02)
            else:
                return

    def measure(self, what: str, seconds: float) -> dict[str, Any]:
        send_load(what, self.port, WARM_UP_SECONDS, self.keys)
        before = self._read_cpu()
        found = send_load(what, self.port, seconds, self.keys)
        requests = sum(found["answers"].values())
        return {**found, "server CPU ms a request": (self._read_cpu() - before) / requests * 1e3}

    def _read_cpu(self) -> float:
        values = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()


def compare(servers: list[str], seconds: float, rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="engrain-bench-") as name:
        for number in range(rounds):
            for server in servers:
                running = RunningServer(server, Path(name) / f"{server}-{number}")
                try:
                    for what in (HELLO, REMEMBER):
                        found.setdefault(server, {}).setdefault(what, []).append(running.measure(what, seconds))
                finally:
                    running.stop()
    for pages in found.values():
        ratios = [many["a second"] / one["a second"] for one, many in zip(*pages.values(), strict=True)]
        pages["remember to hello"] = statistics.median(ratios)
    return found


def measure_limit(server: str, seconds: float, limit: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="engrain-bench-") as name:
        running = RunningServer(server, Path(name) / "limit", limit)
        try:
            return running.measure(REMEMBER, seconds)
        finally:
            running.stop()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--servers", default="uvicorn")
    options.add_argument("--limit", type=float)
    options.add_argument("--serve", help=argparse.SUPPRESS)
    options.add_argument("--folder", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(given.serve, given.folder, given.limit)
        return
    servers = given.servers.split(",")
    report: dict[str, Any] = {"load average": os.getloadavg()[0], **compare(servers, given.seconds, given.rounds)}
    if given.limit:
        report["limited"] = measure_limit(servers[0], given.seconds, given.limit)
    report["clients' CPU s"] = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    sys.stdout.write(json.dumps(report, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
