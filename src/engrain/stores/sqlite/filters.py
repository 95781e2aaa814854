"""Test items by a filter in SQLite: metadata by json_each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engrain.core.model.filters import FLAG, NUMBER, TEXT, Filter, find_type
from engrain.stores.relational.filters import FilterBuilder

_TYPES = {TEXT: "type = 'text'", NUMBER: "type in ('integer', 'real')", FLAG: "type in ('true', 'false')"}


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
    builder: FilterBuilder
    key: str

    @property
    def present(self) -> str:
        return self._exists("j.type <> 'null'")

    def equal(self, values: Sequence[Any]) -> list[str]:
        tests = []
        for kind, typed in _TYPES.items():
            same = [self.builder.bind(one) for one in values if find_type(one) == kind]
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
