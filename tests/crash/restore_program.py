"""A program that restores a backup in place of a store, and reports how it ended."""

from __future__ import annotations

import sys

from engrain.core.errors import EngrainError
from engrain.memory.transfer import restore_backup

if __name__ == "__main__":
    try:
        restore_backup(sys.argv[1], sys.argv[2], force=True)
        sys.stdout.write("restored\n")
    except EngrainError as exc:
        sys.stdout.write(f"{type(exc).__name__}: {exc}\n")
