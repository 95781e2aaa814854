"""The contract of moving a whole memory from one store to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from engrain.core.moving import Key, Row, RowKind, Standing
from engrain.core.scope import Scope

Answer = TypeVar("Answer")


@runtime_checkable
class Movable(Protocol):
    """A store whose rows, of every scope, can be read one after the other and written as they are. For the rim, not for
    callers who are inside a scope."""

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        """The rows of one kind whose key comes after this one, in the order of their keys, at most so many; with a
        scope, its rows and no others. Those of OWN are the store's: with a scope there are none of them but the row of
        kind "store". What is being erased, or hidden by a hold, is not shown."""

    def still(self, do: Callable[[], Answer]) -> Answer:
        """What this thread reads here in `do` is of one moment, whatever others write meanwhile. It writes nothing
        there, and `do` may be called twice. A fork may end the moment early, and a store in memory may have none."""

    def preview(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` in one transaction and roll it back, whether it returns or raises. Reads in `do` see its writes.
        `do` may be called twice. Other writers may have to wait for it. Never called inside another transaction."""

    def standing(self, scopes: Sequence[Scope]) -> Standing:
        """Its mark changes when something of these scopes is forgotten, and when any erasure begins or ends."""

    def restore(
        self, rows: Sequence[Row], since: Standing | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """In one transaction, each in place of the row that has its key. In the order of ROW_KINDS, since a row may
        name one of an earlier kind; of the items, those with the lower ids first. One that names an item or a task
        which is not there is a Conflict, and so is an item whose id is another scope's.

        The row of kind "store" comes first of all: a store that holds rows under another key is a Conflict. A hold that
        hides shuts its user's scopes. What was restored is found as if it had been written here, by words and by
        meaning, and stands in every outbox.

        With `since`, a Conflict if its mark is another by now: nothing is forgotten or erased between this look and the
        end of the transaction. `done` is told now and then how many more rows were written."""

    def close(self) -> None:
        """As ItemStore.close."""
