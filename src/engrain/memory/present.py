"""Ask the present store what was forgotten and erased since a backup, even if it is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from engrain.config import settings
from engrain.core.errors import Conflict, EngrainError, NotADatabase, OnHold, StoreCorrupt, StoreError, WrongKey
from engrain.core.model.rows import STORE_KINDS, Key, Row, RowKind
from engrain.stores.urls import shown

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.ports import AuditLog
    from engrain.privacy.tombstones import Forgetting
    from engrain.stores.sqlite.engine import Engine, Sealed

PathOrUrl = str | os.PathLike[str]
UNREADABLE = (StoreCorrupt, NotADatabase, WrongKey)
_PAGE = 1_000


class Known(Protocol):
    """What is asked of it."""

    @property
    def audit(self) -> AuditLog: ...


class Present:
    """The store as it stands. If it is damaged, its own records are believed and nothing else in it."""

    def __init__(self, store: Forgetting, where: str, damaged: bool) -> None:
        self._store = store
        self._where = where
        self.damaged = damaged
        self._end = self._last()

    def replay(self, restored: Forgetting) -> Mapping[str, int]:
        """Take out of a restored store what was forgotten or erased here: rows by kind."""
        from engrain.privacy.tombstones import replay

        return replay(cast("Forgetting", _Damaged(self._store)) if self.damaged else self._store, restored)

    def check(self) -> None:
        """Conflict if something was forgotten or erased since it was opened."""
        if self._audit.entries(self._end, 1) or self._store.erasing.running():
            raise changed(self._where)

    @property
    def _audit(self) -> AuditLog:
        return cast("Known", self._store).audit

    def _last(self) -> int:
        last = 0
        while found := self._audit.entries(last, _PAGE):
            last = found[-1].n
        return last


class _Damaged:
    """Its rows are not put back: nobody can say that they are as they were."""

    def __init__(self, store: Forgetting) -> None:
        self._store = store
        self.erasing = store.erasing

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        return self._store.dump(kind, after, limit, scope) if kind in STORE_KINDS else []

    def removed(self) -> list[str]:
        return []


def changed(where: str) -> Conflict:
    return Conflict(f"something was forgotten or erased in {where} meanwhile. Nothing is restored: try again.")


@contextmanager
def asked(present: PathOrUrl, key: str | None) -> Iterator[Present]:
    """The store of items alone: what was forgotten is known there. `key` is that of the backup."""
    url = settings(present).store
    where = shown(url)
    with ExitStack() as opened:
        try:
            store = opened.enter_context(closing(_opened(url, key)))
            found = Present(store, where, _damaged(store))
        except (StoreCorrupt, NotADatabase) as exc:
            raise lost(where, exc) from exc
        try:
            yield found
        except StoreCorrupt as exc:
            raise lost(where, exc) from exc


def readable(store: PathOrUrl, key: str | None, whole: bool = False) -> bool:
    """Whether it can be asked, be it damaged; or, if that is what is meant, is `whole`."""
    try:
        with closing(_opened(settings(store).store, key)) as known:
            return not (whole and _damaged(known))
    except UNREADABLE:
        return False


def check_holds(replaced: PathOrUrl, key: str | None, needed: bool) -> None:
    """OnHold if there is somebody of whom what was said since the backup would be lost. If it is not `needed`, a store
    that cannot be read may be replaced."""
    url = settings(replaced).store
    try:
        with closing(_opened(url, key)) as known:
            holds = known.erasing.holds()
    except UNREADABLE as exc:
        if not needed:
            return
        raise exc if isinstance(exc, WrongKey) else lost(shown(url), exc) from exc
    if holds:
        raise OnHold(
            f"a legal hold ({holds[0].reason}) is on somebody in the store that would be replaced. Restore to a new "
            "path and keep the old store, or end the hold: engrain hold --user … --release."
        )


def unlocked(path: Path, key: str | None) -> Engine | Sealed:
    """How a store is opened whose key is about to change: with the key of the new one, of the backup, or with none."""
    from engrain.stores.sqlite.engine import Sealed
    from engrain.stores.sqlite.opening import open_connection, survey

    chosen, trouble = settings(path), list[StoreError]()
    for one in dict.fromkeys((chosen.key, key, None)):
        engine = chosen.engine if one is None else Sealed(one, chosen.engine)
        try:
            open_connection(survey(path, engine, read_only=True)).close()
        except (WrongKey, NotADatabase) as exc:
            trouble.append(exc)
        else:
            return engine
    raise trouble[0]


def _opened(url: str, key: str | None) -> Forgetting:
    from engrain.factory import open_movable
    from engrain.stores.sqlite import SqliteStore

    scheme, found, rest = url.partition("://")
    if found and scheme not in ("sqlite", "file"):
        return cast("Forgetting", open_movable(url))
    path = Path(rest if found else url).expanduser()
    # To open nothing, or an empty file, would make a store of it, which has forgotten nothing.
    if not path.exists():
        raise StoreError(f"there is no store {path}.")
    if path.is_file() and path.stat().st_size == 0:
        raise StoreCorrupt(f"{path} is empty.")
    return cast("Forgetting", SqliteStore(path, engine=unlocked(path, key)))


def _damaged(store: Forgetting) -> bool:
    from engrain.stores.sqlite import SqliteStore

    return isinstance(store, SqliteStore) and not store.whole()


def lost(where: str | Path, exc: EngrainError) -> StoreError:
    kind = NotADatabase if isinstance(exc, NotADatabase) else StoreCorrupt
    return kind(
        f"{where} is damaged, or is no engrain store, so it cannot say what was forgotten in it. If another copy of it "
        "can, name that as against (--against). If none can, say alone=True (--alone), and name the receipts of "
        "erasures that were kept elsewhere (against=read_receipts(…), --receipts): who was erased stays out, and what "
        f"was forgotten since comes back. ({exc})"
    )
