"""Load the named SQL statements of a dialect: the shared ones, with its own in place of some."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

SHARED = "engrain.stores.relational"
_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{([+\w]+)(?::(\w+))?\}")
_LIST = re.compile(r"\{(?:not_)?(?:in|scope_in|scope_ids):(\w+)\}")
# A name after a colon, but neither a cast (::text) nor anything inside quotes.
_PARAMETER = re.compile(r"""('(?:[^']|'')*'|"[^"]*")|(?<![:\w]):([a-z_]\w*)""")


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
    """How a dialect writes fragments and parameters. `$` in a fragment stands for the argument of {name:argument}."""

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
        parameters = frozenset(match[2] for match in _PARAMETER.finditer(body) if match[2])
        if self.pyformat:
            body = _PARAMETER.sub(lambda match: match[1] or f"%({match[2]})s", body.replace("%", "%%"))
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
        return match[1] or f"?{names.setdefault(match[2], len(names) + 1)}"

    numbered = _PARAMETER.sub(number, sql)
    # A getter of one name gives no tuple.
    return numbered, itemgetter(*names) if len(names) > 1 else lambda values: tuple(values[name] for name in names)


def read_folder(package: str) -> Iterator[tuple[str, str]]:
    """The names and the SQL of a package's own statements."""
    names = set[str]()
    folder = files(package) / "sql"
    for file in sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else ():
        pieces = _NAME.split(file.read_text("utf-8"))
        for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
            assert name not in names, f"two statements of {package} are named {name}"
            names.add(name)
            lines = [line for line in body.strip().splitlines() if not line.startswith("--")]
            yield name, "\n".join(lines).rstrip(";")
