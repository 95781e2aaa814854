"""The embedded store: one file, or a database in memory."""

from __future__ import annotations

from engrain.stores.relational.dump import Dump
from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.restore import Restore
from engrain.stores.relational.sessions import Sessions
from engrain.stores.relational.writes import ItemWrites
from engrain.stores.sqlite.backup import Backups
from engrain.stores.sqlite.health import Health


class SqliteStore(Health, Backups, ItemReads, ItemWrites, Sessions, Dump, Restore):
    """One file, many threads and processes. ":memory:" is a store that ends with its object."""
