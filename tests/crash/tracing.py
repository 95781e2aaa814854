"""Whether strace is there and the system lets it trace: some containers do not."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest


@cache
def _may_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    told = ["-e", "trace=kill", "-e", "inject=kill:signal=KILL:when=1"]
    done = subprocess.run(["strace", "-f", "-qq", "-o", os.devnull, *told, "true"], capture_output=True, check=False)
    return done.returncode == 0


needs_strace = pytest.mark.skipif(not _may_trace(), reason="strace is not installed, or may not trace here")
