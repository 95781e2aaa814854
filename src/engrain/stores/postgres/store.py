"""The store on a Postgres server."""

from __future__ import annotations

from engrain.stores.postgres.health import Health
from engrain.stores.postgres.sketches import SketchSearch
from engrain.stores.postgres.vectors import VectorSearch
from engrain.stores.postgres.words import WordSearch
from engrain.stores.relational.dump import Dump
from engrain.stores.relational.reads import ItemReads
from engrain.stores.relational.restore import Restore
from engrain.stores.relational.sessions import Sessions
from engrain.stores.relational.writes import ItemWrites


class PostgresStore(VectorSearch, WordSearch, SketchSearch, Health, ItemReads, ItemWrites, Sessions, Dump, Restore):
    """One schema of one database, any number of processes on any number of machines."""
