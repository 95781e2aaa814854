"""Files and functions stay small enough to read."""

from __future__ import annotations

import ast
import statistics
from functools import cache
from pathlib import Path

from examples import for_each
from source_trees import FILES, SOURCE, parse_module

# The faces and the commands spell out every option; everything else takes at most six values.
WIDE = {"factory.py", "agent.py", "manage_tasks.py", "episodic.py", "semantic.py"}


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    found: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    waiting: list[ast.AST] = [parse_module(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node)
        # A function stands in a statement, and never in an expression.
        if not isinstance(node, ast.expr):
            waiting += ast.iter_child_nodes(node)
    return found


@for_each("path", FILES)
def test_a_file_and_its_functions_fit(path: Path) -> None:
    # The face of one scope is one class, and most of it says what its verbs do.
    most = 600 if path == SOURCE / "memory" / "memory.py" else 500
    assert len(path.read_text().splitlines()) <= most, f"split it: {most} lines are the most"
    for function in functions(path):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= 80, f"{function.name} has {length} lines; 80 are the most"


@for_each("path", FILES)
def test_a_function_takes_at_most_six_values(path: Path) -> None:
    if path.name in WIDE or path.parent.name in ("cli", "bench", "memory"):
        return
    for function in functions(path):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        named = [a.arg for a in arguments if a.arg not in ("self", "cls")]
        assert len(named) <= 6, f"{function.name} takes {len(named)} values: a value object is missing"


@for_each("path", FILES)
def test_a_module_opens_with_what_it_is_for(path: Path) -> None:
    doc = ast.get_docstring(parse_module(path))
    assert doc, "say in one sentence what the module is for"
    assert doc.splitlines()[0].rstrip().endswith((".", "…", ":"))


def test_most_functions_fit_a_screen() -> None:
    lengths = [(f.end_lineno or 0) - f.lineno + 1 for path in FILES for f in functions(path)]
    assert sum(length <= 40 for length in lengths) >= 0.97 * len(lengths)
    assert statistics.median(len(path.read_text().splitlines()) for path in FILES) <= 200


def test_no_module_is_named_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    assert not [
        path for path in FILES if path.stem in vague or path.stem.startswith("base_") or path.stem.endswith("_v2")
    ]
