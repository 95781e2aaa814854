"""Look up known vulnerabilities of the pinned packages with pip-audit. Say so where its data cannot be had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("dev", "encryption")  # dev has the packages of core and build, too


def audit(name: str) -> tuple[int, list[str]]:
    """Look up the packages of a lock file: how many there is data on, and their known vulnerabilities."""
    lock = ROOT / "requirements" / f"{name}.txt"
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--timeout", "10", "-r", str(lock)]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip() or "no answer").splitlines()[-1]
        sys.stdout.write(f"{name}: not audited, the data cannot be had: {reason}\n")
        return 0, []
    known = [one for one in packages if "skip_reason" not in one]
    found = [f"{name}: {one['name']} {one['version']}: {bug['id']}" for one in known for bug in one["vulns"]]
    sys.stdout.write("\n".join([f"{name}: data on {len(known)} of {len(packages)} packages", *found]) + "\n")
    return len(known), found


if __name__ == "__main__":
    audited = [audit(name) for name in LOCKS]
    if not any(count for count, _ in audited):
        sys.stdout.write("Nothing was audited: the data on vulnerabilities cannot be had here.\n")
    sys.exit(any(found for _, found in audited))
