"""Read the numbered migrations of an engine."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files


@cache
def read_migrations(package: str) -> tuple[tuple[int, str], ...]:
    """The number and the script of each migration, in order."""
    folder = files(package) / "migrations"
    named = ((re.fullmatch(r"(\d{4})_\w+\.sql", one.name), one) for one in folder.iterdir())
    return tuple(sorted((int(match[1]), one.read_text("utf-8")) for match, one in named if match))
