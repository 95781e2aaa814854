"""Named statements, from the .sql files of a backend."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def statements(package: str, name: str, parts: Mapping[str, str]) -> Mapping[str, str]:
    """Each statement by its name; {part} stands for a piece of SQL that several share."""
    pieces = _NAME.split((files(package) / name).read_text("utf-8"))
    return {key: _statement(body, parts) for key, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _statement(body: str, parts: Mapping[str, str]) -> str:
    lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
    statement = "\n".join(lines).rstrip(";")
    for part, text in parts.items():
        statement = statement.replace(f"{{{part}}}", text)
    return statement
