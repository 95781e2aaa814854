"""Turn a filter into SQL whose values are bound, with the meaning of filters.matches_filter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from engrain.core.clock import to_micros
from engrain.core.errors import UnknownKey
from engrain.core.model.filters import FIELDS, FLAG, OPERATORS, Condition, Filter, find_type

_ORDERS = ("<", "<=", ">", ">=")
_SOURCES = "exists (select 1 from source where source.scope = item.scope and source.item = item.n and source.name <> ''"


class Field(Protocol):
    """The values that one condition looks at. Every test is an expression that is never null."""

    @property
    def present(self) -> str: ...

    def equal(self, values: Sequence[Any]) -> list[str]:
        """Tests of which one holds if the field has one of the values. Values of two types are never equal."""

    def compare(self, operator: str, value: Any) -> str: ...


class FilterBuilder(ABC):
    """Builds the SQL of one filter. A dialect says how it binds a value, searches a text and looks into metadata."""

    contains: ClassVar[str]
    starts_with: ClassVar[str]

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    @abstractmethod
    def bind(self, value: Any, field: str = "") -> str:
        """The parameter that stands for the value. `field` is the column that it is compared with."""

    @abstractmethod
    def metadata(self, key: str) -> Field: ...

    def build(self, where: Filter | None) -> tuple[str, dict[str, Any]]:
        """An expression over table `item`, and the values of its named parameters."""
        tests = [self._test(condition) for condition in where.conditions] if where else []
        return " and ".join(f"({test})" for test in tests) or "true", self.values

    def compare(self, left: str, operator: str, value: Any, field: str = "") -> str:
        if operator in ("contains", "starts with"):
            pattern = self.contains if operator == "contains" else self.starts_with
            return pattern.format(left, self.bind(value)) if isinstance(value, str) else "false"
        if isinstance(value, bool) and operator in _ORDERS:
            return "false"
        return f"{left} {operator} {self.bind(value, field)}"

    def name_value(self, value: Any) -> str:
        """A name that cannot meet those of the statement itself."""
        name = f"filter{len(self.values)}"
        self.values[name] = to_micros(value) if isinstance(value, datetime) else value
        return name

    def _test(self, condition: Condition) -> str:
        operator, value = condition.operator, condition.value
        if operator not in OPERATORS:
            raise UnknownKey(f"unknown operator {operator!r}.")
        field = self._field(condition.field)
        if operator == "exists":
            return field.present if value else f"not ({field.present})"
        if operator not in ("=", "!=", "in", "not in"):
            return field.compare(operator, value)
        wanted = [value] if operator in ("=", "!=") else list(value)
        tests = field.equal([value for value in wanted if value is not None])
        tests += [f"not ({field.present})"] * (None in wanted)
        equal = " or ".join(f"({test})" for test in tests) or "false"
        return equal if operator in ("=", "in") else f"not ({equal})"

    def _field(self, name: str) -> Field:
        if name.startswith("metadata."):
            return self.metadata(name.removeprefix("metadata."))
        if name == "source":
            return _Sources(self)
        if name not in FIELDS:
            raise UnknownKey(f"unknown filter key {name!r}.")
        return _Column(self, name)


@dataclass(frozen=True, slots=True)
class _Column:
    builder: FilterBuilder
    name: str

    @property
    def present(self) -> str:
        return f"item.{self.name} is not null"

    def equal(self, values: Sequence[Any]) -> list[str]:
        same = [self.builder.bind(value, self.name) for value in values if find_type(value) == FIELDS[self.name]]
        return [f"coalesce(item.{self.name} in ({', '.join(same)}), false)"] if same else []

    def compare(self, operator: str, value: Any) -> str:
        if find_type(value) != FIELDS[self.name] or FIELDS[self.name] == FLAG:
            return "false"
        return f"coalesce({self.builder.compare(f'item.{self.name}', operator, value, self.name)}, false)"


@dataclass(frozen=True, slots=True)
class _Sources:
    """The names of an item's sources: a test holds if it holds for one of them."""

    builder: FilterBuilder

    @property
    def present(self) -> str:
        return f"{_SOURCES})"

    def equal(self, values: Sequence[Any]) -> list[str]:
        same = [self.builder.bind(value) for value in values if isinstance(value, str)]
        return [f"{_SOURCES} and source.name in ({', '.join(same)}))"] if same else []

    def compare(self, operator: str, value: Any) -> str:
        if not isinstance(value, str):
            return "false"
        return f"{_SOURCES} and {self.builder.compare('source.name', operator, value)})"
