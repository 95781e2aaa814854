"""The embedded store: one file, or a database in memory."""

from __future__ import annotations

from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.sessions import Sessions
from engrain.stores.relational.writes import ItemWrites
from engrain.stores.sqlite.backup import Backing
from engrain.stores.sqlite.care import Care
from engrain.stores.sqlite.deployment import Deployment
from engrain.stores.sqlite.models import Models
from engrain.stores.sqlite.moving import Moving
from engrain.stores.sqlite.search import Search


class SqliteStore(Search, Care, Moving, Backing, Models, Deployment, ItemReads, ItemWrites, Sessions):
    """One file, many threads and processes. ":memory:" is a store that ends with its object."""
