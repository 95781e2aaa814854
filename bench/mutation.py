"""Change the code in small ways and see whether the tests of its package notice: python bench/mutation.py tasks.

A mutant runs in a copy of the tree. It is killed if a test fails, or if the tests take six times as long as before.
Those that ran out of time are counted apart: on a busy machine a slow run looks like an endless one.

Two changes are left out, because no promise can tell them apart:
- The boundary between two float measures or readings of the machine's clock (MEASURES): they are equal by chance only.
- `return None` for `return False` in a function that returns a bool: both are false.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
SOURCE = Path("src/engrain")
COPIED = ("src", "tests", "packages", "docs", "deploy", "README.md", "pyproject.toml")
# Quick and telling tests first.
TESTS = {
    "tasks": "tests/unit/test_task_parts.py tests/paths/test_task*.py tests/paths/test_resumable.py "
    "tests/unit/test_cli_tasks.py tests/crash/test_task_matrix.py tests/crash/test_task_outcomes.py",
    "retrieval": "tests/unit/test_rank.py tests/unit/test_question.py tests/unit/test_pack.py "
    "tests/unit/test_near_duplicates.py tests/paths/test_sections.py tests/paths/test_standing_preferences.py "
    "tests/paths/test_recall.py "
    "tests/paths/test_views.py tests/paths/test_models.py tests/paths/test_isolation.py tests/paths/test_scenes.py "
    "tests/unit/test_rerankers.py tests/unit/test_current_first.py tests/paths/test_poison.py "
    "tests/paths/test_changes.py",
    "stores/relational": "tests/conformance/test_sqlite_tasks.py tests/paths/test_holds.py tests/paths/test_forget.py "
    "tests/unit/test_statements.py tests/unit/test_sqlite_s*.py tests/conformance/test_sqlite.py "
    "tests/paths/test_erase.py tests/paths/test_erase_proofs.py tests/paths/test_audit.py tests/paths/test_episodic.py "
    "tests/paths/test_copy.py tests/paths/test_replay_proofs.py tests/paths/test_restore_receipts.py "
    "tests/paths/test_export.py tests/conformance/test_postgres*.py",
}
OPPOSITE = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
MEASURES = re.compile(r"relevance|cover|boot_clock")


@dataclass(frozen=True)
class Mutant:
    kind: str
    path: Path
    node: ast.stmt | ast.expr
    new: str

    def source(self) -> bytes:
        """The file with the node's text replaced; all else stays byte for byte."""
        lines = (ROOT / self.path).read_bytes().splitlines(keepends=True)
        first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        head, tail = lines[first][: self.node.col_offset], lines[last][self.node.end_col_offset :]
        # In brackets a replaced expression keeps its meaning, and may span lines.
        new = f"({self.new})" if isinstance(self.node, ast.expr) else self.new
        return b"".join([*lines[:first], head + new.encode() + tail, *lines[last + 1 :]])

    def diff(self) -> str:
        old, new = (ROOT / self.path).read_text(), self.source().decode()
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), str(self.path), self.kind, lineterm="", n=2)
        return "\n".join(lines)


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Only the bodies of functions: a change elsewhere is seldom one of behaviour."""
    nodes = list(ast.walk(ast.parse((ROOT / path).read_bytes())))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    falsy = {
        node
        for function in functions
        if function.returns and ast.unparse(function.returns) in ("bool", "Flow[bool]")
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) == "False"
    }
    # Python 3.11 does not tell where in an f-string an expression stands.
    passed = {inner for node in nodes if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in (node for function in functions for one in function.body for node in ast.walk(one)):
        if node not in passed and isinstance(node, (ast.stmt, ast.expr)):
            passed.add(node)
            changes = () if node in falsy else _changes(node)
            yield from (Mutant(kind, path, node, new) for kind, new in changes)


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Compare(ops=[operator], comparators=[right]):
            measured = not isinstance(right, ast.Constant) and MEASURES.search(ast.unparse(node))
            for kind, swapped in (("comparison", OPPOSITE), ("boundary", BOUNDARY)):
                if type(operator) in swapped and not (measured and kind == "boundary"):
                    yield kind, ast.unparse(ast.Compare(node.left, [swapped[type(operator)]()], node.comparators))
        case ast.BoolOp(op=operator):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", ast.unparse(ast.BoolOp(other, node.values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not removed", ast.unparse(operand)
        case ast.Constant(value=bool(value)):
            yield "constant", repr(not value)
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            yield "constant", repr(value + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "early return", "return None"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            yield "statement removed", "pass"


def choose(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many of each kind as there are, in turn."""
    chance = random.Random(seed)
    kinds: dict[str, list[Mutant]] = {}
    for one in chance.sample(mutants, len(mutants)):
        kinds.setdefault(one.kind, []).append(one)
    turns = [kinds[kind][n] for n in range(len(mutants)) for kind in sorted(kinds) if n < len(kinds[kind])]
    return turns[:count]


Outcome = Literal["passed", "failed", "out of time"]


def run_tests(tree: Path, tests: list[str], limit: float | None = None) -> Outcome:
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    files = dict.fromkeys(str(path.relative_to(tree)) for name in tests for path in sorted(tree.glob(name)))
    sources = (tree / "src", tree / "packages" / "engrain-conformance" / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
    try:
        done = subprocess.run([*words, *files], cwd=tree, env=environment, timeout=limit, capture_output=True)
    except subprocess.TimeoutExpired:
        return "out of time"
    return "failed" if done.returncode else "passed"


def check_package(package: str, tree: Path, options: argparse.Namespace) -> None:
    tests = options.tests or TESTS[package].split()
    files = sorted((ROOT / SOURCE / package).rglob("*.py"))
    mutants = [one for path in files for one in find_mutants(path.relative_to(ROOT))]
    began = time.monotonic()
    if run_tests(tree, tests) != "passed":
        raise SystemExit(f"{package}: the tests fail without a change.")
    limit = max(120.0, 6 * (time.monotonic() - began))
    outcomes: Counter[Outcome] = Counter()
    for mutant in choose(mutants, options.count, options.seed):
        whole = (tree / mutant.path).read_bytes()
        (tree / mutant.path).write_bytes(mutant.source())
        outcome = run_tests(tree, tests, limit)
        (tree / mutant.path).write_bytes(whole)
        outcomes[outcome] += 1
        if outcome != "failed":
            print(f"{outcome}:\n{mutant.diff()}\n", flush=True)  # noqa: T201
        print(f"{package}: {dict(outcomes)}; {len(mutants)} possible", file=sys.stderr, flush=True)  # noqa: T201
    killed, late = outcomes["failed"] + outcomes["out of time"], outcomes["out of time"]
    print(f"{package}: {killed} of {outcomes.total()} killed, {late} of them out of time")  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="+", help=f"below src/engrain: {', '.join(TESTS)}")
    parser.add_argument("--count", type=int, default=20, help="mutants a package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="+", help="files of tests (globs), for a package that is not listed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tree / name)
        for package in options.packages:
            check_package(package, tree, options)


if __name__ == "__main__":
    main()
