"""Look up known vulnerabilities of the pinned packages with pip-audit. Say so where its data cannot be had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("core", "dev", "encryption")


def audit(name: str) -> list[str] | None:
    """The known vulnerabilities of a lock file; None if they could not be looked up."""
    lock = ROOT / "requirements" / f"{name}.txt"
    options = ["--disable-pip", "--require-hashes", "--format", "json", "--timeout", "10", "-r", str(lock)]
    done = subprocess.run([sys.executable, "-m", "pip_audit", *options], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip() or "no answer").splitlines()[-1]
        sys.stdout.write(f"{name}: not audited, its data cannot be had: {reason}\n")
        return None
    if skipped := [one["name"] for one in packages if "skip_reason" in one]:
        sys.stdout.write(f"{name}: no data on {len(skipped)} of {len(packages)} packages: {', '.join(skipped[:3])} …\n")
    return [f"{one['name']} {one['version']}: {bug['id']}" for one in packages for bug in one.get("vulns", ())]


if __name__ == "__main__":
    found = [f"{name}: {one}" for name in LOCKS for one in audit(name) or ()]
    sys.stdout.write("\n".join(found) or "No vulnerability is known of the packages that were audited.")
    sys.stdout.write("\n")
    sys.exit(bool(found))
