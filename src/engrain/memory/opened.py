"""What every part of the face stands on: an engine, until the memory is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engrain.core.errors import StoreClosed

if TYPE_CHECKING:
    from engrain.engine import Engine

Filter = Mapping[str, Any]


class Opened:
    _engine: Engine | None

    @property
    def _open(self) -> Engine:
        if self._engine is None:
            raise StoreClosed("this memory was closed. Open it again: Memory(…).")
        return self._engine
