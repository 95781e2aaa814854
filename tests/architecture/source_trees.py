"""The modules of the package as syntax trees, each read once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "engrain"
FILES = sorted(SOURCE.rglob("*.py"))


@cache
def parse_module(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
