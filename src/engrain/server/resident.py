"""The resident process of a store: `engrain serve` on a unix socket, started on demand and gone when nobody uses it.

Importing this module loads the standard library and the core alone, so that a hook may use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engrain import __version__
from engrain.config import load_settings
from engrain.core.errors import ConfigError, StoreUnavailable
from engrain.core.http_routes import RESIDENT_PATH

if TYPE_CHECKING:
    from engrain.memory.store import Store

DEFAULT_IDLE_SECONDS = 900
START_SECONDS = 30.0
PROBE_SECONDS = 2.0
_POLL_SECONDS = 0.03
_MAX_LOG_CHARACTERS = 500


@dataclass(frozen=True)
class Place:
    """The socket of a store's resident process, its lock and its log."""

    location: str
    socket: Path

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def log(self) -> Path:
        return log_path(self.socket)

    def is_locked(self) -> bool:
        """True while a server has the socket, or is about to have it."""
        try:
            lock = os.open(lock_path(self.socket), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def read_pid(self) -> int | None:
        """Return the process that has the socket; None if there is none."""
        with suppress(OSError):
            text = lock_path(self.socket).read_text()
            return int(text) if text.isdigit() and self.is_locked() else None
        return None


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def log_path(path: Path) -> Path:
    return path.with_suffix(".log")


def find_place(store: str | os.PathLike[str] | None = None) -> Place:
    """Return the place of a store's resident process: the same for every program of this user."""
    location = os.fspath(store) if store is not None else os.environ.get("ENGRAIN_STORE", "engrain.db")
    name = load_settings(location).store
    scheme, separator, rest = name.partition("://")
    if (separator and scheme in ("http", "https", "unix")) or name.endswith(":memory:"):
        raise ConfigError("only a store that several processes can open has a resident process.")
    if not separator or scheme in ("sqlite", "file"):
        name = os.path.realpath(os.path.expanduser(rest if separator else name))
    if "://" not in location:
        location = os.path.abspath(os.path.expanduser(location))
    digest = hashlib.blake2b(os.fsencode(name), digest_size=12).hexdigest()
    return Place(location, _find_folder() / f"{digest}.sock")


def find(store: str | os.PathLike[str] | None = None) -> str | None:
    """Return the URL of the running resident process, for Memory and Store; None if there is none."""
    try:
        place = find_place(store)
    except ConfigError:
        return None  # a server, or settings whose error the program meets when it opens the store
    return place.url if ask(place) is not None else None


def connect(store: str | os.PathLike[str] | None = None, *, idle: int = DEFAULT_IDLE_SECONDS) -> Store:
    """Return the store through its resident process, which is started if there is none.

    It serves every program of this user, and ends after `idle` seconds without a request. The next request starts it
    again.
    """
    from engrain.client.connection import Connection
    from engrain.memory.remote import RemoteStore

    place = find_place(store)
    start(place, idle)
    return RemoteStore.connect(Connection(place.url, revive=lambda: start(place, idle)))


def stop(store: str | os.PathLike[str] | None = None, seconds: float = START_SECONDS, *, kill: bool = False) -> bool:
    """Stop the resident process, and wait until it has closed the store. False if there was none.

    With `kill` a process that does not answer is ended all the same.
    """
    place = find_place(store)
    pid = place.read_pid()
    found = ask(place, "POST") is not None
    if not found and kill and pid is not None:
        _signal(pid, signal.SIGTERM, signal.SIGCONT)  # a suspended process acts on a signal when it goes on
    if not _wait(lambda: not place.is_locked(), seconds):
        if kill and pid is not None:
            _signal(pid, signal.SIGKILL)
        if not kill or not _wait(lambda: not place.is_locked(), seconds):
            raise StoreUnavailable(f"the resident process of {place.location} did not stop within {seconds:g} s.")
    return found or pid is not None


def _signal(pid: int, *numbers: signal.Signals) -> None:
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def ask(place: Place, method: str = "GET") -> Mapping[str, Any] | None:
    """Ask the resident process who it is, or with POST to stop; None if nobody answers."""
    connection = _UnixConnection(str(place.socket))
    try:
        connection.request(method, RESIDENT_PATH, headers={"Host": "localhost"})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        return found if answer.status == 200 and isinstance(found, dict) else None
    except (OSError, ValueError, RecursionError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def start(place: Place, idle: int = DEFAULT_IDLE_SECONDS, seconds: float = START_SECONDS) -> None:
    """Make sure that a process of this version, or a newer one, answers. An older one is replaced."""
    place.socket.parent.mkdir(mode=0o700, exist_ok=True)
    _find_folder()
    end = time.monotonic() + seconds
    process: subprocess.Popen[bytes] | None = None
    while time.monotonic() < end:
        if (found := ask(place)) is not None:
            if not is_older(str(found.get("version")), __version__):
                return
            ask(place, "POST")
        elif process is None and not place.is_locked():
            process = _spawn(place, idle)
        elif process is not None and process.poll() is not None:
            if not place.is_locked() and process.returncode:
                raise StoreUnavailable(f"the resident process of {place.location} ended: {_read_log(place)}")
            process = None
        time.sleep(_POLL_SECONDS)
    raise StoreUnavailable(f"the resident process of {place.location} does not answer after {seconds:g} s.")


def is_older(version: str, than: str) -> bool:
    """Compare versions by their numbers, so that two installed versions do not replace each other in turn."""
    return _read_numbers(version) < _read_numbers(than)


def _read_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _spawn(place: Place, idle: int) -> subprocess.Popen[bytes]:
    """Start the process in a session of its own: it outlives this program, and ends by itself."""
    command = [sys.executable, "-m", "engrain", "serve", "--store", place.location, "--socket", str(place.socket)]
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            [*command, "--no-keys", "--idle", str(idle), "--quiet"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd="/", start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(log)
    # Reaped when it ends, so that a program that runs for long keeps no zombie.
    threading.Thread(target=process.wait, name="engrain-resident", daemon=True).start()
    return process


def _find_folder() -> Path:
    """Return the folder of sockets; ConfigError if somebody else could open it."""
    folder = Path("/tmp") / f"engrain-{os.getuid()}"  # checked below
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return folder
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} belongs to somebody else, or others can open it: remove it.")
    return folder


def _read_log(place: Place) -> str:
    try:
        lines = place.log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    return next((line.strip()[:_MAX_LOG_CHARACTERS] for line in reversed(lines) if line.strip()), "it left no message.")


def _wait(is_done: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


class _UnixConnection(http.client.HTTPConnection):
    """A connection through a unix socket, with the standard library alone."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PROBE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
