"""The command line."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Imports happen inside, so that Ctrl-C ends cleanly even while they run."""
    try:
        from engrain.cli.main import root

        root.main(prog_name="engrain")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
