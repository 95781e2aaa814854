"""Load the SQL of an engine: the shared statements, its own in place of some, and its migrations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

SHARED = "engrain.stores.relational"
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{([+\w]+)(?::(\w+))?\}")
_LIST = re.compile(r"\{(?:not_)?(?:in|scope_in|scope_ids):(\w+)\}")
_MIGRATION = re.compile(r"(\d{4})_\w+\.sql")
# Quoted text, or a name after a colon that is not a cast (::text). The scan is fast because each case begins with a
# character of its own.
_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|:(?<![:\w]:)([a-z_]\w*)""")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, ready for the driver; `parameters` are the names that it takes, `lists` those that are lists."""

    name: str
    sql: str
    parameters: frozenset[str]
    lists: frozenset[str]
    changes: bool = False  # it takes a change number

    def fill(self, **pieces: str) -> Statement:
        """The same with SQL of our own in place of {name}: a filter, a dimension. Never text of a caller."""
        sql = self.sql
        for name, piece in pieces.items():
            sql = sql.replace(f"{{{name}}}", piece)
        return replace(self, sql=sql)


@dataclass(frozen=True, slots=True)
class Syntax:
    """The fragments and parameters of a dialect. `$` in a fragment stands for the argument of {name:argument}."""

    package: str
    fragments: Mapping[str, str]
    pyformat: bool = False  # %(name)s, with every other % doubled

    def load(self) -> Mapping[str, Statement]:
        """The statements by name."""
        found = dict(read_folder(SHARED))
        found.update(read_folder(self.package))
        return {name: self._prepare(name, body) for name, body in found.items()}

    def _prepare(self, name: str, body: str) -> Statement:
        lists, changes = frozenset(_LIST.findall(body)), "{change}" in body
        while (expanded := _FRAGMENT.sub(self._expand, body)) != body:
            body = expanded
        parameters = frozenset(match[1] for match in _PARAMETER.finditer(body) if match[1])
        if self.pyformat:
            body = _PARAMETER.sub(lambda match: f"%({match[1]})s" if match[1] else match[0], body.replace("%", "%%"))
        return Statement(name, body, parameters, lists, changes)

    def _expand(self, match: re.Match[str]) -> str:
        name, argument = match[1], match[2]
        if name not in self.fragments:
            return match[0]  # to be filled when it is run
        return self.fragments[name].replace("$", argument or "")


@lru_cache(maxsize=1_000)
def number_parameters(sql: str) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """The SQL with ?1, ?2 in place of names, and what puts named values into that order.

    A driver binds many values three times as fast by position."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"?{names.setdefault(match[1], len(names) + 1)}" if match[1] else match[0]

    numbered = _PARAMETER.sub(number, sql)
    # A getter of one name gives no tuple.
    return numbered, itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)


def read_folder(package: str) -> Iterator[tuple[str, str]]:
    """The names and the SQL of a package's own statements."""
    names = set[str]()
    folder = files(package) / "sql"
    for file in sorted(folder.iterdir(), key=lambda path: path.name) if folder.is_dir() else ():
        pieces = _NAME.split(file.read_text("utf-8"))
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
            assert name not in names, f"two statements of {package} are named {name}"
            names.add(name)
            lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
            yield name, "\n".join(lines).rstrip(";")


@cache
def read_migrations(package: str) -> tuple[tuple[int, str], ...]:
    """The number and the script of each migration, in order."""
    folder = files(package) / "migrations"
    named = ((_MIGRATION.fullmatch(file.name), file) for file in folder.iterdir())
    return tuple(sorted((int(match[1]), file.read_text("utf-8")) for match, file in named if match))
