"""The embedded backend: one SQLite file."""

from __future__ import annotations

from engrain.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
