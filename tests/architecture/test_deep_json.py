"""JSON that is nested too deeply raises RecursionError, which is no ValueError."""

from __future__ import annotations

import ast
from pathlib import Path

import engrain

SOURCE = Path(engrain.__file__).parent


def list_names(node: ast.AST | None) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} if node else set()


def test_who_expects_json_that_is_none_expects_json_that_is_too_deep() -> None:
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Try) and "json.loads(" in "\n".join(map(ast.unparse, node.body)):
                caught = set().union(*(list_names(handler.type) for handler in node.handlers))
                parses = any("orjson" not in line for line in map(ast.unparse, node.body) if "json.loads(" in line)
                if "ValueError" in caught and "RecursionError" not in caught and parses:
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
