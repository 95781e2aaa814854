"""The sets that measure capture are well formed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).parents[2] / "bench" / "capture" / "check.py"


def test_every_record_of_the_capture_sets_is_well_formed() -> None:
    done = subprocess.run([sys.executable, str(CHECK)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
