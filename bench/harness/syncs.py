"""Count and slow down the syncs of SQLite: a file layer of apsw's between it and the disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import current_thread

import apsw

_names = count()


@dataclass(slots=True)
class Syncs:
    """`least` is how long a sync takes at least, in seconds: 0 leaves the disk as it is. Counted by the thread's name,
    because a checkpoint beside the writes syncs too, and nobody waits for it."""

    least: float = 0.0
    by_thread: Counter[str] = field(default_factory=Counter)

    @property
    def in_background(self) -> int:
        return self.by_thread["engrain-checkpoint"]

    @property
    def waited_for(self) -> int:
        return self.by_thread.total() - self.in_background


@contextmanager
def watched_syncs(least: float = 0.0) -> Iterator[Syncs]:
    """Stores opened inside go through the layer; they must be closed inside too."""
    syncs = Syncs(least)
    below = apsw.vfs_names()[0]
    layer = _Layer(f"engrain-bench-{next(_names)}", below, syncs)
    try:
        yield syncs
    finally:
        apsw.set_default_vfs(below)
        layer.unregister()


class _Layer(apsw.VFS):
    def __init__(self, name: str, below: str, syncs: Syncs) -> None:
        super().__init__(name, below, makedefault=True)
        self._below = below
        self._syncs = syncs

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self._below, name, flags, self._syncs)


class _File(apsw.VFSFile):
    def __init__(self, below: str, name: str | apsw.URIFilename | None, flags: list[int], syncs: Syncs) -> None:
        super().__init__(below, name, flags)
        self._syncs = syncs

    def xSync(self, flags: int) -> None:  # noqa: N802
        began = time.perf_counter()
        super().xSync(flags)
        self._syncs.by_thread[current_thread().name] += 1
        left = self._syncs.least - (time.perf_counter() - began)
        if left > 0:
            time.sleep(left)
