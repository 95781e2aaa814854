"""Stores for the tests of integrations."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engrain_conformance.embedder import HashEmbedder

from engrain import Store

# A framework may hand over texts that a log refuses: too long, with a NUL, with half of a pair of surrogates.
REFUSED = ["word " * 200_001, "one\0two", "half \ud83d"]


@contextmanager
def open_store(backend: str, folder: Path, **options: Any) -> Iterator[Store]:
    """An empty store on SQLite, or in a schema of its own on Postgres."""
    location = str(folder / "agent.db")
    if backend == "postgres":
        from servers import postgres

        location = f"{postgres().url()}?schema=i{uuid.uuid4().hex[:12]}"
    with Store(location, embedder=HashEmbedder(), **options) as opened:
        yield opened


def count_bytes(folder: Path, word: str) -> int:
    """How often a word is in the bytes of the files."""
    # In another process: to open and close the file in this one would drop the locks that SQLite has on it here.
    found = subprocess.run(["grep", "-raoc", word, str(folder)], capture_output=True, text=True, check=False).stdout
    return sum(int(line.rpartition(":")[2]) for line in found.splitlines())


def is_installed(module: str) -> bool:
    parents = [module.rsplit(".", n)[0] for n in range(module.count("."), 0, -1)]
    return all(find_spec(one) is not None for one in (*parents, module))


class Figures:
    """What a run showed, by test and backend."""

    def __init__(self) -> None:
        self.packages: list[str] = []
        self.shown: dict[str, dict[str, str]] = {}

    def name_packages(self, *names: str) -> None:
        """Name the packages whose versions the page shows."""
        self.packages += [one for one in names if one not in self.packages]

    def show(self, test: str, backend: str, value: object) -> None:
        """Note what a test showed, after it has asserted it."""
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
        self.shown.setdefault(test, {})[backend] = text
