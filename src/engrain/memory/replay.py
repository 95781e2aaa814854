"""Remove what was forgotten or erased since from a database that its own tools restored."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from engrain.config import load_settings
from engrain.core.errors import Conflict, InvalidInput, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting

PathOrUrl = str | os.PathLike[str]
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """The removed rows by kind. Unless `swept`, `engrain maintain` still has to remove their bytes."""

    rows: Mapping[str, int]
    swept: bool

    def __str__(self) -> str:
        count = sum(self.rows.values())
        if not count:
            return "Nothing of it was there."
        removed = "1 row was" if count == 1 else f"{count:,} rows were"
        return (
            f"{removed} taken out.{'' if self.swept else ' Their bytes are still to be swept out: engrain maintain.'}"
        )


class Present(NamedTuple):
    """The store that knows what was forgotten and erased since. Of a `damaged` one only these records are used."""

    store: Forgetting
    where: str
    damaged: bool = False


def replay_erasures(
    restored: PathOrUrl, against: PathOrUrl | None = None, *, receipts: Sequence[Receipt | PathOrUrl] = ()
) -> Replayed:
    """Remove what was forgotten or erased since from a database that its own tools restored (pg_restore).

    Call it before any program opens the database. `against` is the present store of the same memory; its erasure marks,
    holds and audit log come along. `receipts` are `Receipt` values, or paths of receipt files and folders. It is one
    transaction: if it is interrupted, nothing has changed."""
    from engrain.factory import open_whole_store
    from engrain.privacy.receipts import list_digests, read_receipts
    from engrain.privacy.tombstones import replay, replay_receipts

    target, named = load_settings(restored).store, read_receipts(receipts)
    if against is None and not named:
        raise InvalidInput("name the present store, or receipts of erasures: one of them must say what was erased.")
    if against is not None and load_settings(against).store == target:
        raise InvalidInput("RESTORED and the present store are the same.")
    with ExitStack() as opened:
        present = None if against is None else opened.enter_context(open_present(against))
        store = cast("Forgetting", opened.enter_context(closing(open_whole_store(target))))

        def remove() -> Mapping[str, int]:
            end = _last_entry(present.store) if present else 0
            removed = Counter(replay(present.store, store, damaged=present.damaged) if present else {})
            removed.update(replay_receipts(named, store))
            if named or removed.total():
                store.audit.append("restore", {"kept_out": removed.total(), **list_digests(named)})
            if present and (present.store.audit.entries(end, 1) or present.store.erasing.running()):
                raise changed_meanwhile(present.where)
            return removed

        return Replayed(store.together(remove), store.purge())


@contextmanager
def open_present(where: PathOrUrl, key: str | None = None) -> Iterator[Present]:
    """Open the store of the items alone. `key` is one that it may have in place of its own."""
    from engrain.factory import open_whole_store
    from engrain.stores.sqlite import SqliteStore
    from engrain.stores.sqlite.opening import find_engine
    from engrain.stores.urls import shown

    chosen = load_settings(where)
    scheme, found, rest = chosen.store.partition("://")
    if found and scheme not in ("sqlite", "file"):
        with closing(open_whole_store(chosen.store)) as store:
            yield Present(cast("Forgetting", store), shown(chosen.store))
        return
    path = Path(rest if found else chosen.store).expanduser()
    # Opening a missing or empty file would make a new store, which has forgotten nothing.
    if not path.exists():
        raise StoreError(f"there is no store {path}.")
    if path.is_file() and path.stat().st_size == 0:
        raise StoreCorrupt(f"{path} is empty.")
    with closing(SqliteStore(path, engine=find_engine(path, chosen.engine, (chosen.key, key, None)))) as file:
        yield Present(cast("Forgetting", file), str(path), damaged=not file.whole())


def changed_meanwhile(where: str) -> Conflict:
    return Conflict(f"something was forgotten or erased in {where} meanwhile. Nothing is restored: try again.")


def _last_entry(store: Forgetting) -> int:
    last = 0
    while found := store.audit.entries(last, _PAGE):
        last = found[-1].n
    return last
