"""The folder of the connected memory: its store, socket, spool, switch and the record of changed files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engrain.connect.hook import OFF_FILE, SOCKET_FILE
from engrain.core.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from engrain.core.secrets.redact import PrivateKind
    from engrain.memory import Store

HOME_VARIABLE = "ENGRAIN_HOME"
SPOOL_FOLDER, STATE_FILE, HEARD_FILE = "spool", "connect.json", "heard.json"
MAX_SOCKET_PATH = 100  # the system's limit is 107 bytes
MAX_STATE_BYTES = 64 << 20
CACHE_BYTES = 128 << 20
REDACTED: tuple[PrivateKind, ...] = ("keys", "cards")


@dataclass(frozen=True)
class ConnectHome:
    """Paths below one folder."""

    folder: Path

    @classmethod
    def find(cls, named: str | None = None) -> ConnectHome:
        """The named folder, or that in ENGRAIN_HOME, else `engrain` in the user's folder for data."""
        named = named or os.environ.get(HOME_VARIABLE)
        data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
        home = cls(Path(named or f"{data}/engrain").expanduser().absolute())
        if len(os.fsencode(home.socket)) > MAX_SOCKET_PATH:
            raise ConfigError(f"{home.folder} is too long a path for a socket: set {HOME_VARIABLE} to a shorter one.")
        return home

    def prepare(self) -> ConnectHome:
        """Make the folder, for this user alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.spool.mkdir(mode=0o700, exist_ok=True)
        return self

    @property
    def socket(self) -> Path:
        """The link to the socket of the store's resident process, by which hooks reach it."""
        return self.folder / SOCKET_FILE

    @property
    def spool(self) -> Path:
        return self.folder / SPOOL_FOLDER

    @property
    def backups(self) -> Path:
        return self.folder / "backups"

    @property
    def off(self) -> Path:
        return self.folder / OFF_FILE

    @property
    def store(self) -> str:
        """The location of the store: memory.db in the folder, unless `engrain connect --store` named another."""
        return str(self.read_state().get("store") or self.folder / "memory.db")

    def read_state(self) -> dict[str, Any]:
        return read_json(self.folder / STATE_FILE)

    def write_state(self, state: dict[str, Any]) -> None:
        write_file(self.folder / STATE_FILE, json.dumps(state, indent=1).encode())


def switch(home: ConnectHome, on: bool, repository: str | None = None) -> None:
    """Switch the memory on or off, for all or for one repository. Off means that nothing is kept and nothing shown."""
    home.prepare()
    if repository is None:
        if on:
            home.off.unlink(missing_ok=True)
        else:
            write_file(home.off, b"")
        return
    state = home.read_state()
    names = [name for name in state.get("off_in", []) if name != repository]
    home.write_state({**state, "off_in": names if on else [*names, repository]})


def is_off(home: ConnectHome, repository: str) -> bool:
    """True if the memory is off for all, or for the repository of this name."""
    return home.off.exists() or repository in list_switched_off(home)


def list_switched_off(home: ConnectHome) -> Sequence[str]:
    """The repositories for which the memory is off."""
    found: Sequence[str] = home.read_state().get("off_in", [])
    return found


def open_store(home: ConnectHome, background: bool = True) -> Store:
    """Open the store of a connected memory. Keys and card numbers never reach it."""
    from engrain.memory import Store

    settings: dict[str, dict[str, Any]] = {
        "privacy": {"redact": list(REDACTED)},
        "stores": {"cache_bytes": CACHE_BYTES},
    }
    return Store(home.store, settings=settings, background=background)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file of ours; an empty one if there is none."""
    from engrain.ports.plain_files import read_plain  # it loads every port: the spool does without

    try:
        found = json.loads(read_plain(path, MAX_STATE_BYTES))
    except NotFound:
        return {}
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{path} cannot be read: {exc}.") from exc
    if not isinstance(found, dict):
        raise ConfigError(f"{path} cannot be read: it holds no JSON object.")
    return found


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step and keep its mode. A link stays: the file that it names is replaced."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
