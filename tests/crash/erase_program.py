"""Erase a user from a store, and die at the point that is named."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "paths"))

from dying import DyingVfs, Points
from erasing_kit import opened


def erase(store: Path, fatal: int | None) -> None:
    """The number of points is noted beside the store."""
    points = Points()
    layer = DyingVfs(points)
    with opened(store, background=False) as memory:
        points.count, points.fatal = 0, fatal
        done = memory.store.erase(user="ana", folders=[store.with_name("files")])
        assert done.receipt, done.why
    layer.unregister()
    store.with_suffix(".points").write_text(str(points.count))
