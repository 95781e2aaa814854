"""SQLite's SQL: the fragments of shared statements, and tests of items by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from engrain.core.model.filters import FLAG, NUMBER, TEXT, Filter, find_type
from engrain.stores.relational.reads import FilterBuilder
from engrain.stores.relational.rows import EPISODE_COLUMNS, ITEM_COLUMNS, RECORD_COLUMNS, STEP_COLUMNS, TASK_COLUMNS
from engrain.stores.relational.statements import Statement, Syntax
from engrain.stores.sqlite.checksums import load_tables

MODEL_SHIFT = 40
_TYPES = {TEXT: "type = 'text'", NUMBER: "type in ('integer', 'real')", FLAG: "type in ('true', 'false')"}
# Every row that an answer is made of is checked as it is read.
_INTACT = {f"intact_{name}": table.build_check("1") for name, table in load_tables().items()}


def _check_rows(columns: str, **checked: str) -> str:
    """The same columns, where the named one of each table gives its value only if the row is intact."""
    for table, column in checked.items():
        value = f"{table}.{column}"
        columns = columns.replace(value, load_tables()[table].build_check(value), 1)
    return columns


# As rows.read_sources reads them. Subqueries in the order of an index need no sort.
SOURCES = """(select json_group_array(json_array(source.kind, source.name, json((
    select json_group_array(json_array(cited.id, span_start, span_end)) from (
      select cited.id, citation.span_start, citation.span_end
      from citation join item as cited on cited.n = citation.cited
      where citation.scope = source.scope and citation.item = source.item and citation.number = source.number
        and {intact:citation}
      order by citation.n) as cited))))
  from (select * from source where source.scope = item.scope and source.item = item.n and {intact:source}
    order by number) as source)"""
ITEM = f"{_check_rows(ITEM_COLUMNS, item='n')},\n  {SOURCES}"
_VALUES = "(select value from json_each(:$))"
SYNTAX = Syntax(
    "engrain.stores.sqlite",
    {
        "item": ITEM,
        "sources": SOURCES,
        "episode": _check_rows(EPISODE_COLUMNS, episode="id"),
        "task": _check_rows(TASK_COLUMNS, task="task", snapshot="body"),
        "step": _check_rows(STEP_COLUMNS, step="name", large_result="body"),
        "record": _check_rows(RECORD_COLUMNS, record="key"),
        **_INTACT,
        "intact": "{intact_$}",
        "visible": "item.retracted_at is null and item.valid_from <= {at} and (item.valid_to is null or {at} < "
        "item.valid_to) and (item.expires_at is null or {at} < item.expires_at)",
        "unexpired": "(record.expires_at is null or {at} < record.expires_at)",
        "at": "coalesce(:at, {now})",
        "now": "(select max(:clock, counter.now) from counter where counter.n = 0)",
        "tick": "{now}",
        "wall_clock": ":clock",
        "lease_clock": ":steady_clock",
        # A moment of the steady clock is compared in Python.
        "may_be_stale": "lease_until is not null",
        "change": ":change",
        "in": f"in {_VALUES}",
        "not_in": f"not in {_VALUES}",
        "scope_in": f"in {_VALUES}",
        "not_scope_in": f"not in {_VALUES}",
        "scope_ids": f"in (select scope from scope where id in {_VALUES})",
        # Rows of all scopes are read in the order of the scopes' ids, which a caller knows.
        "scope_order": "scope.id",
        "scope_value": ":$",
        "scope_key": "$.scope",
        "within": "scope.state = 0 and scope.id between coalesce(:within, '') and coalesce(:within, 'g') "
        "and {intact:$}",
        "index_columns": "",
        "index_values": "",
        "index_update": "",
        "item_id": "(id)",
        "find_text": "instr",
        "ordered_join": "cross join",
        "same": "is",
        "greatest": "max",
        "least": "min",
        "for_update": "",
        "skip_locked": "",
        # No index for this column: by the scope's own index all of its rows would be read for a few.
        "+": "+",
        # Left to itself SQLite takes the primary key of an episode, and reads all of the scope.
        "indexed_by": "indexed by $",
    },
)


def build_where(where: Filter | None) -> tuple[str, dict[str, Any]]:
    return _SqliteFilter().build(where)


class _SqliteFilter(FilterBuilder):
    contains = "instr({}, {}) > 0"
    starts_with = "substr({0}, 1, length({1})) = {1}"

    def bind(self, value: Any, field: str = "") -> str:
        return f":{self.name_value(value)}"

    def metadata(self, key: str) -> _Metadata:
        return _Metadata(self, self.bind(key))


@dataclass(frozen=True, slots=True)
class _Metadata:
    """A key of the metadata, looked up by json_each."""

    builder: FilterBuilder
    key: str

    @property
    def present(self) -> str:
        return self._exists("j.type <> 'null'")

    def equal(self, values: Sequence[Any]) -> list[str]:
        tests = []
        for kind, typed in _TYPES.items():
            same = [self.builder.bind(value) for value in values if find_type(value) == kind]
            if same:
                tests.append(self._exists(f"j.{typed} and j.value in ({', '.join(same)})"))
        return tests

    def compare(self, operator: str, value: Any) -> str:
        typed = _TYPES.get(find_type(value))
        if typed is None:
            return "false"
        test = self._exists(f"j.{typed} and {self.builder.compare('j.value', operator, value)}")
        if operator != "contains":
            return test
        inside = (
            f"from json_each(item.metadata, j.fullkey) as e where e.{typed} and e.value = {self.builder.bind(value)}"
        )
        listed = self._exists(f"j.type = 'array' and exists (select 1 {inside})")
        return f"{test} or {listed}"

    def _exists(self, test: str) -> str:
        # json_each compares the key as a value: a path would have to quote what the caller chose.
        return f"exists (select 1 from json_each(item.metadata) as j where j.key = {self.key} and {test})"


def vector_key(model: int, n: int) -> int:
    """The key of an item's vectors by one model."""
    return model << MODEL_SHIFT | n


@cache
def load_statements() -> Mapping[str, Statement]:
    return SYNTAX.load()


@cache
def load_sql() -> Mapping[str, str]:
    """The SQL of each statement, for code that runs it on a connection itself."""
    return {name: statement.sql for name, statement in load_statements().items()}
