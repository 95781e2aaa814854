"""The primitives that an SQL engine supplies: transactions, named statements, locks, time and change numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Vectors, Words
from engrain.stores.relational.rows import Row
from engrain.stores.relational.statements import Statement

Answer = TypeVar("Answer")
ScopeKey = int | str  # how the rows of an engine name their scope


class Pending(Protocol):
    """The rows of a statement that was sent. Fetching them waits for the server."""

    def fetchall(self) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows that are here already."""

    found: list[Row]

    def fetchall(self) -> list[Row]:
        return self.found


@dataclass(frozen=True, slots=True)
class Deferred(Generic[Answer]):
    """A closure's answer that is still on its way: it arrives together with the end of the transaction."""

    asked: Pending
    made: Callable[[list[Row]], Answer]

    def read(self) -> Answer:
        return self.made(self.asked.fetchall())


class Transaction(Protocol):
    """One transaction of one scope, or of maintenance across all scopes (`scope` None).

    Values are given by name; a list goes where the statement says {in:name}. The transaction binds `:scope`
    (the scope's key; null for a scope that the store does not know), `:owner`, `:clock` and `:change` itself."""

    @property
    def scope(self) -> Scope | None: ...

    @property
    def dialect(self) -> Dialect: ...

    @property
    def changes(self) -> int:
        """The number of statements with {change} that were run."""

    @property
    def owner(self) -> str:
        """The keyed hash of the user whose scope it is; "" for no user."""

    def rows(self, statement: str | Statement, **values: Any) -> list[Row]: ...

    def ask(self, statement: str | Statement, **values: Any) -> Pending:
        """Send it and fetch later: several questions cross the network together."""

    def run(self, statement: str | Statement, **values: Any) -> None:
        """Send it and do not wait. A failure is raised by the next statement that waits, and nothing is kept."""

    def many(self, statement: str | Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        """Run it once for each row, without waiting."""

    def lock_scope(self) -> None:
        """Make the scope if it is new, and let no other write to it until the commit.

        BeingErased or OnHold if it takes no writes."""

    def add_scope(self) -> None:
        """Make the scope if it is new, without locking it. BeingErased or OnHold if its user takes no writes."""

    def open_scopes(self, scopes: Iterable[Scope], lock: Iterable[Scope] = ()) -> Mapping[Scope, ScopeKey]:
        """Lock several scopes and make those that are new: their keys. Those to `lock` are locked if they exist.

        BeingErased or OnHold if one takes no writes."""

    def within(self, scope: Scope, key: ScopeKey | None = None) -> Transaction:
        """The same transaction for the statements of one scope. With `key`, for rows that are locked already."""

    def lock_known_scope(self) -> bool:
        """Lock the scope as lock_scope does, but do not make it: False if it does not exist."""

    def lock_new_scopes(self, subject_hash: str) -> None:
        """Let this user get no new scope until the commit. After the locks of holds."""

    def delete_scope_index(self) -> None:
        """Delete what search reads of all items of the scope."""

    def add_erased_scope(self, id: str) -> ScopeKey:
        """The key for the tombstones of an erased scope, which is known by a keyed hash alone."""

    def lock_holds(self, subject_hash: str | None = None, *, change: bool = False) -> None:
        """Keep the holds on this user, or on everybody, as they are until the commit. Before anything else is locked.

        To `change` them, wait for all who rely on them. "" is no user, who has no holds."""

    def mark_purge(self) -> None:
        """Note that this transaction removes something whose bytes are to be removed too."""

    def begin_write(self) -> tuple[int, int]:
        """Lock the scope as lock_scope does: the number of its last change, and the time to record.

        Needed before the first statement with {change}. Maintenance has locked its scopes by then."""

    def end_write(self, changed: Iterable[ScopeKey] = ()) -> Pending:
        """Record the scope's last change: one row with its number. Call after the last statement with {change}.

        Maintenance names the scopes that changed."""

    def find_numbers(self, ids: Sequence[str]) -> Mapping[str, int]:
        """The numbers of items that this transaction has added, by their ids."""

    def write_index(self, entries: Sequence[tuple[int, Words, Vectors | None]]) -> None:
        """Write what search reads of new items, given by their numbers. An item with several models has several."""

    def replace_vectors(self, vectors: Mapping[tuple[int, str], Vectors]) -> None:
        """Write vectors in place of those that an item has of a model, by the item's number and the model."""

    def retract_index(self, id_: str) -> None:
        """Leave out of searches what was corrected."""

    def delete_index(self, numbers: Sequence[int]) -> None: ...

    def store_time(self, now: int) -> None:
        """Let no later time of the store be before this one, which a {tick} of this transaction gave."""

    def now(self) -> int:
        """The store's time in microseconds: the clock, or the newest time recorded if that is later."""


Do = Callable[[Transaction], Answer | Deferred[Answer]]


class Dialect(Protocol):
    """An open database. Errors of its driver are translated before they leave it."""

    key: bytes  # of every hash in the store
    scope_tables: tuple[str, ...]  # every table with rows of a scope, but for those that keep erased data out

    @property
    def name(self) -> str:
        """The store as an error shows it."""

    @property
    def statements(self) -> Mapping[str, Statement]: ...

    def read(self, scope: Scope | None, do: Do[Answer], *, latest: bool = False) -> Answer:
        """Run `do` in one snapshot. With `latest`, a statement may see what was committed after the one before it."""

    def write(
        self, scope: Scope | None, do: Do[Answer], *, repeat: bool = False, request_id: str | None = None
    ) -> Answer:
        """Run `do` in one transaction. If others made it fail it runs again from the start.

        With `repeat`, doing it twice is harmless, so a commit whose outcome is unknown is done again too.
        OutcomeUnknown names the `request_id` with which the caller may do so."""

    def in_transaction(self, do: Callable[[], Answer], request_id: str | None = None) -> Answer:
        """Run `do` with all its reads and writes of this thread in one transaction. It may run twice."""

    def ask(self, scope: Scope | None, statement: str | Statement, **values: Any) -> list[Row]:
        """Read the rows of one statement, in one round trip."""

    def read_clock(self, scope: Scope | None) -> int:
        """The store's time in microseconds as `Transaction.now` has it, as far as this process knows."""

    def prepare_index(self, models: Mapping[str, int]) -> None:
        """Get ready, outside a transaction, to write vectors of these models: dimensions by model."""

    def write_each(self, writes: Sequence[tuple[Scope, Do[Answer], str | None]]) -> list[Answer | EngrainError]:
        """Run each `do` of a scope as `write` does, with its request id: the answer or the error of each."""

    def encoding(self, vectors: Sequence[Vectors]) -> AbstractContextManager[None]:
        """Do the arithmetic for vectors that the block writes, outside of its transaction."""

    def after_writes(self, count: int) -> None:
        """Learn that so many items were written."""

    def index_values(self, words: Words | None = None, metadata: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The values of those columns of an item that serve searches and filters of this engine alone."""

    def build_where(self, where: Filter | None) -> tuple[str, dict[str, Any]]:
        """The SQL of a filter over table `item`, and its values."""

    def read_vectors(self, rows: Iterable[Row]) -> dict[str, tuple[bytes, ...]]:
        """The float32 windows by item id, from rows of load_vectors."""

    def check_full_access(self, tx: Transaction) -> None:
        """ConfigError if this role cannot read the rows of all scopes."""
