"""Erases a user from a store, and dies at the point it is told to; prints how many points there are."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "paths"))

from dying import DyingVfs, Points
from erasing_kit import opened

if __name__ == "__main__":
    store, fatal = sys.argv[1:]
    points = Points()
    layer = DyingVfs(points)
    with opened(store, background=False) as memory:
        points.count, points.fatal = 0, int(fatal) or None
        done = memory.store.erase(user="ana", folders=[Path(store).with_name("files")])
        assert done.receipt, done.why
    sys.stdout.write(str(points.count))
