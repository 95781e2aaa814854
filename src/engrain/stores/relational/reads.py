"""Read items: by id, by filter, by slot and in their history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import UnknownKey
from engrain.core.identity import Scope
from engrain.core.model.filters import FIELDS, FLAG, OPERATORS, Condition, Filter, find_type
from engrain.core.model.items import Citation, Item, Vectors
from engrain.core.model.queries import (
    Changes,
    ItemChange,
    ItemCitation,
    ListQuery,
    OutboxEntry,
    OutdatedSpan,
    Sketch,
    SketchQuery,
    UnembeddedItem,
)
from engrain.core.text.tokenizer import fold_entity
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.rows import Row, write_time
from engrain.stores.relational.usage import UsageCounts

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


class ItemReads:
    """A part of the store."""

    dialect: Dialect
    usage: UsageCounts

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        by_id = {item.id: item for item in self._load_items(scope, "load_items", ids=ids)}
        return [by_id[id] for id in ids if id in by_id]

    def page(self, query: ListQuery) -> list[Item]:
        rows = self._list_items(query, "list_items", after=query.after, limit=query.limit)
        return self.usage.read_items(query.scope, rows)

    def short_page(self, query: ListQuery) -> list[Item]:
        return self.page(query)

    def count(self, query: ListQuery) -> int:
        ((found,),) = self._list_items(query, "count_items")
        return int(found)

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        return self._load_items(scope, "load_slots", prefix=prefix, at=write_time(at))

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        return next(iter(self._load_items(scope, "load_slot", slot=name, at=write_time(at))), None)

    def history(self, scope: Scope, slot: str) -> list[Item]:
        return self._load_items(scope, "load_slot_history", slot=slot)

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        return self._load_items(scope, "load_corrected", id=id)

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        return self._load_items(scope, "load_about", name=fold_entity(entity), at=write_time(at))

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        rows = dict.fromkeys(row[1:] for row in self.dialect.ask(scope, "load_citations", ids=ids))
        return [ItemCitation(item, Citation(cited, start, end)) for item, cited, start, end in rows]

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        rows = self._ask_where(query.scope, "load_sketches", query.where, query.at, ids=query.ids, reach=query.reach)
        return [Sketch(*row) for row in rows]

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        rows = self._ask_where(scope, "list_items_with_traits", where, at, traits=traits, limit=limit)
        return [id_ for (id_,) in rows]

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        def do(tx: Transaction) -> list[OutdatedSpan]:
            rows = tx.rows("find_outdated_spans", ids=ids)
            asked = [
                tx.ask("find_last_version", n=row[4], at=None)
                if row[5] is None
                else tx.ask("find_slot_holder", slot=row[5], at=None)
                for row in rows
            ]
            texts = [current.fetchall() for current in asked]
            return [
                OutdatedSpan(cited, start, end, from_micros(until), *(current[0] if current else (None, None)))
                for (cited, start, end, until, _, _), current in zip(rows, texts, strict=True)
            ]

        order = {id_: place for place, id_ in reversed(list(enumerate(ids)))}
        found = self.dialect.read(scope, do)
        return sorted(found, key=lambda span: (order[span.id], span.start, span.end, span.until))

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        rows = self.dialect.ask(None, "load_unembedded", model=model, limit=limit)
        return [
            UnembeddedItem(Scope(tenant, agent, user), id_, text, kind, hash_.hex(), slot)
            for tenant, agent, user, id_, text, kind, hash_, slot in rows
        ]

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        rows = self.dialect.ask(scope, "load_vectors", ids=ids, model=model)
        return {id_: Vectors(model, windows) for id_, windows in self.dialect.read_vectors(rows).items()}

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        self.usage.count(scope, dict.fromkeys(ids))

    # Scopes and changes

    def current_time(self) -> int:
        return int(self.dialect.ask(None, "find_newest_time")[0][0])

    def scopes(self) -> list[Scope]:
        return [Scope(*names) for names in self.dialect.ask(None, "list_scopes")]

    def removed(self) -> list[str]:
        return [id_ for (id_,) in self.dialect.ask(None, "list_deleted_items")]

    def newest(self, scope: Scope) -> int:
        rows = self.dialect.ask(scope, "find_last_change")
        return int(rows[0][0]) if rows else 0

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        def do(tx: Transaction) -> tuple[list[Row], list[Row]]:
            asked = tx.ask("load_changes", since=since, limit=limit + 1), tx.ask("find_last_change")
            return asked[0].fetchall(), asked[1].fetchall()

        rows, last = self.dialect.read(scope, do)
        found = tuple(ItemChange(changed, id_, bool(deleted)) for changed, id_, deleted in rows[:limit])
        if len(rows) <= limit:
            return Changes(max(since, last[0][0] if last else 0), found)
        return Changes(found[-1].seq if found else since, found, complete=False)

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        def do(tx: Transaction) -> tuple[list[Row], bool]:
            known = tx.rows("find_outbox_reader", name=target)
            ((upto,),) = tx.rows("find_settled_change")
            since = known[0][0] if known else 0
            # Mostly there is nothing: a look at every scope would take longer, the more there are.
            if upto <= since:
                return [], bool(known)
            only = scope and scope.id
            return tx.rows("load_outbox", since=since, upto=upto, limit=limit, only=only), bool(known)

        # The rows are read after the number up to which they are complete. Of one scope under its policy: a role that
        # may not look through all scopes still finds what the vector server has not taken yet.
        rows, known = self.dialect.read(scope, do, latest=True)
        if not known:
            self.dialect.write(None, lambda tx: tx.run("add_outbox_reader", name=target), repeat=True)
        return [OutboxEntry(seq, Scope(*owner), item, bool(deleted)) for seq, item, deleted, *owner in rows]

    def settle(self, target: str, seq: int) -> None:
        self.dialect.write(None, lambda tx: tx.run("store_outbox_position", name=target, seq=seq), repeat=True)

    def _load_items(self, scope: Scope, statement: str, **values: Any) -> list[Item]:
        return self.usage.read_items(scope, self.dialect.ask(scope, statement, **values))

    def _list_items(self, query: ListQuery, statement: str, **values: Any) -> list[Row]:
        return self._ask_where(query.scope, statement, query.where, history=query.history, at=query.at, **values)

    def _ask_where(
        self, scope: Scope, statement: str, where: Filter | None, at: datetime | None, **values: Any
    ) -> list[Row]:
        test, tested = self.dialect.build_where(where)
        filled = self.dialect.statements[statement].fill(where=test)
        return self.dialect.ask(scope, filled, at=write_time(at), **values, **tested)
