"""Connect and disconnect clients."""

from __future__ import annotations

from pathlib import Path

from engrain.connect.changes import ChangeLedger, FileChange
from engrain.connect.clients import CLIENTS, Client, Place, find_client
from engrain.connect.home import ConnectHome
from engrain.core.errors import NotFound


class Connector:
    """Change the settings of clients for this user, or for one repository."""

    def __init__(self, home: ConnectHome, project: Path | None = None, user_folder: Path | None = None) -> None:
        self._home = home
        self._place = Place(home, user_folder or Path.home(), project)
        self._ledger = ChangeLedger(home)

    def find_installed(self) -> list[Client]:
        return [client for client in CLIENTS.values() if self.is_installed(client)]

    def find_connected(self) -> list[Client]:
        return [client for name, client in CLIENTS.items() if self.list_files(name)]

    def preview(self, name: str) -> list[FileChange]:
        """The changes that `connect` would make."""
        return self._ledger.plan_connect(self._key(name), find_client(name).list_edits(self._place))

    def preview_removal(self, name: str) -> list[FileChange]:
        """The changes that `disconnect` would make."""
        return self._ledger.plan_disconnect(self._key(name), find_client(name).list_edits(self._place))

    def connect(self, name: str) -> list[FileChange]:
        self._home.prepare()
        return self._ledger.connect(self._key(name), find_client(name).list_edits(self._place))

    def disconnect(self, name: str) -> list[FileChange]:
        """Take our entries out of a client's files. NotFound if there are none."""
        key, edits = self._key(name), find_client(name).list_edits(self._place)
        changes = self._ledger.plan_disconnect(key, edits)
        if not self._ledger.list_files(key) and not any(change.changes for change in changes):
            raise NotFound(f"{name} is not connected.")
        return self._ledger.disconnect(key, edits)

    def list_files(self, name: str) -> list[Path]:
        """The files with our entries of this client."""
        return self._ledger.list_files(self._key(name))

    def is_installed(self, client: Client) -> bool:
        return client.is_installed(self._place.user_folder)

    def _key(self, name: str) -> str:
        return name if self._place.project is None else f"{name}@{self._place.project}"
