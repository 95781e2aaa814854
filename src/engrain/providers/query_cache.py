"""Remember the vectors of the latest queries: an agent often asks the same thing twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from engrain.providers.forks import after_fork

if TYPE_CHECKING:
    from engrain.ports import Matrix

REMEMBERED = 1_024


class QueryCache:
    """The least recently used query goes first. Safe to use from several threads; rows are read-only."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._start_afresh()
        after_fork(self._start_afresh)

    def _start_afresh(self) -> None:
        self._rows: OrderedDict[str, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def embed(self, texts: list[str], embed: Callable[[list[str]], Matrix]) -> Matrix:
        import numpy as np

        found = self._known(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing or not texts:
            rows = embed(missing)
            if not texts:
                return rows
            rows.setflags(write=False)
            found.update(zip(missing, rows, strict=True))
            self._keep(missing, found)
        matrix = np.stack([found[text] for text in texts])
        matrix.setflags(write=False)
        return matrix

    def _known(self, texts: list[str]) -> dict[str, Matrix]:
        with self._lock:
            found = {text: self._rows[text] for text in texts if text in self._rows}
            for text in found:
                self._rows.move_to_end(text)
        return found

    def _keep(self, texts: list[str], found: dict[str, Matrix]) -> None:
        with self._lock:
            for text in texts[-self._size :]:
                # A copy: a row of a large batch would keep the whole batch in memory.
                self._rows[text] = found[text].copy()
                self._rows[text].setflags(write=False)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)
