"""Time what comes before the first answer: import, a cold command, and what lies on disk and in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import orjson

from harness.timing import median, seconds

_IMPORT = """
import sys, time
began = time.perf_counter()
import engrain
took = time.perf_counter() - began
heavy = [name for name in ("numpy", "onnxruntime", "apsw") if name in sys.modules]
print(took, len(sys.modules), *heavy)
"""


def import_time(runs: int) -> dict[str, Any]:
    """`import engrain` in a new interpreter, not counting the interpreter itself."""
    took: list[float] = []
    modules, heavy = 0, []
    for _ in range(runs):
        run = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
        answer = run.stdout.split()
        took.append(float(answer[0]))
        modules, heavy = int(answer[1]), answer[2:]
    return {"milliseconds": median(took) * 1e3, "modules": modules, "heavy": heavy}


def cold_recall(store: Path, runs: int) -> dict[str, Any]:
    """The whole command, a new process each time, with the real embedder; then with the file out of the page cache."""
    which = ["--store", str(store), "--user", "bench"]
    command = [sys.executable, "-m", "engrain", *which, "recall", "Who said what?"]
    warm = [_run(command) for _ in range(runs)]
    dropped = []
    for _ in range(max(1, runs // 2)):
        if _drop_from_cache(store):
            dropped.append(_run(command))
    return {
        "seconds": median(warm),
        "worst_seconds": max(warm),
        "file_not_cached_seconds": median(dropped) if dropped else None,
    }


def held_memory(store: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness.child", "memory", str(store), "bench"]
    answer = orjson.loads(
        subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=True).stdout
    )
    return {**answer, "store_and_search": answer["after"] - answer["before"]}


def installed_bytes(root: str = "engrain") -> dict[str, Any]:
    """Every file of the package and of all it requires, without extras; an editable install counts by its source."""
    sizes: dict[str, int] = {}
    _add_sizes(root, sizes)
    return {"bytes": sum(sizes.values()), "packages": dict(sorted(sizes.items(), key=lambda pair: -pair[1]))}


def _add_sizes(name: str, sizes: dict[str, int]) -> None:
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in sizes:
        return
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    sizes[key] = _size(found) or _source_size(name)
    for requirement in found.requires or ():
        if "extra ==" not in requirement and "sys_platform" not in requirement:
            _add_sizes(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0], sizes)


def _size(found: Distribution) -> int:
    paths = [Path(str(found.locate_file(file))) for file in found.files or ()]
    size = sum(path.stat().st_size for path in paths if path.is_file())
    editable = any(path.suffix == ".pth" for path in paths)
    return 0 if editable else size


def _source_size(name: str) -> int:
    import importlib.util

    spec = importlib.util.find_spec(name.replace("-", "_"))
    if spec is None or spec.origin is None:
        return 0
    folder = Path(spec.origin).parent
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _run(command: list[str]) -> float:
    return seconds(lambda: subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=True))


def _drop_from_cache(store: Path) -> bool:
    """Ask the system to forget what it has read of the file; only Linux can be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in store.parent.glob(store.name + "*"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True
