"""Connect and disconnect clients."""

from __future__ import annotations

from pathlib import Path

from engrain.connect.clients import CLIENTS, Client, Place, find_client
from engrain.connect.connect_home import ConnectHome
from engrain.connect.settings_changes import ChangeLedger, FileChange
from engrain.core.errors import NotFound


class Connector:
    """Change the settings of clients for this user, or for one repository."""

    def __init__(self, home: ConnectHome, project: Path | None = None) -> None:
        self.project = project
        self._home = home
        self._place = Place(home, Path.home(), project)
        self._ledger = ChangeLedger(home)

    def find_installed(self) -> list[Client]:
        return [client for client in CLIENTS.values() if client.is_installed(self._place.user_folder)]

    def preview(self, name: str, remove: bool = False) -> list[FileChange]:
        """The changes that `connect` would make, or `disconnect`."""
        plan = self._ledger.plan_disconnect if remove else self._ledger.plan_connect
        return plan(self._key(name), find_client(name).list_edits(self._place))

    def connect(self, name: str) -> list[FileChange]:
        self._home.prepare()
        return self._ledger.connect(self._key(name), find_client(name).list_edits(self._place))

    def disconnect(self, name: str) -> list[FileChange]:
        """Take our entries out of a client's files. NotFound if there are none."""
        if not self.list_files(name) and not any(change.changes for change in self.preview(name, remove=True)):
            raise NotFound(f"{name} is not connected{' in this repository' if self.project else ''}.")
        return self._ledger.disconnect(self._key(name), find_client(name).list_edits(self._place))

    def list_files(self, name: str) -> list[Path]:
        """The files with our entries of this client."""
        return self._ledger.list_files(self._key(name))

    def _key(self, name: str) -> str:
        return name if self.project is None else f"{name}@{self.project}"


def list_connections(home: ConnectHome) -> list[tuple[str, Connector]]:
    """The connected clients, for the user and in repositories; the last one first.

    Two of them may have changed one file. Taken back in this order, each finds it as it left it.
    """
    keys = [key.partition("@") for key in reversed(ChangeLedger(home).list_clients())]
    places = {folder: Connector(home, Path(folder) if folder else None) for _, _, folder in keys}
    return [(name, places[folder]) for name, _, folder in keys]
