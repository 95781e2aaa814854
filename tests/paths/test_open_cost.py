"""Opening a store stays cheap: hooks and command lines open one each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# 129 modules of ours, 294 in all: 0.2 s of CPU on a quiet machine. Counted, because seconds depend on the machine.
MAX_OWN_MODULES, MAX_MODULES = 135, 310
# Each takes a tenth of a second or more, and is imported by the first verb that needs it.
HEAVY = {"numpy", "onnxruntime", "httpx", "asyncio", "starlette", "pydantic", "rich", "click", "mcp"}


def test_opening_a_store_imports_few_modules_and_none_that_is_heavy(tmp_path: Path) -> None:
    code = "import sys\nfrom engrain import Store\nwith Store(sys.argv[1]) as store: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.db")], capture_output=True, check=True)
    names = done.stdout.decode().split()
    assert not HEAVY & set(names)
    assert sum(name.partition(".")[0] == "engrain" for name in names) <= MAX_OWN_MODULES
    assert len(names) <= MAX_MODULES
