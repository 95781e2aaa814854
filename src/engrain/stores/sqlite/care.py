"""Look after the store: say how it is, examine it, and make its indexes anew."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from engrain.core.errors import EngrainError, ReadOnlyStore
from engrain.core.model.items import Words
from engrain.core.text.passages import index_words
from engrain.ports import Finding, StoreStatus
from engrain.stores.sqlite.connection import Connection, Row, sqlite_version
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.migrate import latest
from engrain.stores.sqlite.opening import SAFE_WAL_VERSION
from engrain.stores.sqlite.sql import load

_SQL = load("care.sql")
_BATCH = 500
_LITTLE_SPACE = 100_000_000
_NO_SPACE = 5_000_000  # to which the log grows before it is written back


class Care(Handle):
    def status(self, model: str | None = None) -> StoreStatus:
        rows = self.snapshot(lambda db: db.rows(_SQL["status"], {"model": model}))
        ((items, standing, scopes, seq, unembedded, pending),) = rows
        return StoreStatus(
            backend="sqlite",
            location=str(self._site.path or ":memory:"),
            schema=latest(),
            items=items,
            open_items=standing,
            scopes=scopes,
            bytes=sum(_size(one) for one in self._site.files()),
            seq=seq,
            unembedded=unembedded,
            purge_pending=bool(pending),
            details={
                "engine": self._site.engine,
                "sqlite": self._site.version,
                "journal": self._site.journal,
                "encrypted": self._site.key is not None,
            },
        )

    def check(self) -> list[Finding]:
        def examine(db: Connection) -> list[Finding]:
            return [*_schema(db), *_integrity(db), *_slots(db), *_indexes(db), *self._purged(db)]

        return [self._engine(), *self.snapshot(examine), *self._disk()]

    def _engine(self) -> Finding:
        what = f"SQLite {self._site.version} by {self._site.engine}, journal: {self._site.journal}"
        # What keeps a sound engine from its log is told by the file system's own point.
        if not self._site.no_wal or sqlite_version(self._site.engine) >= SAFE_WAL_VERSION:
            return Finding("engine", "pass", what)
        return Finding("engine", "warn", f"{what}; {self._site.no_wal}", "`pip install -U apsw`")

    def _purged(self, db: Connection) -> Iterator[Finding]:
        if db.rows(_SQL["pending"]):
            why = "forgotten bytes are still in the log, because a reader holds it"
            yield Finding("forgotten", "warn", why, "close other programs that read the store")

    def _disk(self) -> Iterator[Finding]:
        if self._site.path is None:
            return
        free, used = shutil.disk_usage(self._site.path.parent).free, sum(map(_size, self._site.files()))
        room = f"{free / 1e9:,.1f} GB" if free >= 1e9 else f"{free / 1e6:,.1f} MB"
        state = f"{room} free, the store takes {used / 1e6:,.1f} MB"
        if free < _NO_SPACE:
            yield Finding(
                "disk", "fail", f"{state}: writes are refused, or soon will be", "free some space on its disk"
            )
        elif free < max(_LITTLE_SPACE, used):
            # A backup, a restore and an upgrade of the schema each write a second copy.
            yield Finding("disk", "warn", f"{state}: not enough for a copy of it", "free some space on its disk")
        else:
            yield Finding("disk", "pass", state)

    def rebuild(self) -> int:
        from engrain.stores.sqlite.index.rows import rewrite_codes, write_index_many

        if self._site.read_only:
            raise ReadOnlyStore(self._site.explain_read_only())

        def write(db: Connection, rows: list[Row], words: dict[int, Words]) -> None:
            before = {n: text for n, text, *_ in rows}
            now = db.rows(_SQL["texts_of"], (rows[0][0], rows[-1][0]))
            same = [n for n, text in now if before.get(n) == text]
            write_index_many(db, [(n, words[n], None) for n in same])
            rewrite_codes(db, same)
            _renumber(db, {n: words[n] for n in same})

        # Batches of their own: other writers come in between, and what they changed meanwhile is left alone.
        seen, last = 0, 0
        while rows := self.snapshot(lambda db: db.rows(_SQL["texts"], (last, _BATCH))):  # noqa: B023
            words = {n: index_words(text, speaker, slot) for n, text, speaker, slot in rows}
            self.transaction(lambda db: write(db, rows, words))  # noqa: B023
            seen, last = seen + len(rows), rows[-1][0]
        self.transaction(_drop_all_misfits)
        self._indexes = None
        return seen


def _renumber(db: Connection, words: dict[int, Words]) -> None:
    """Every search sees a rebuilt item as changed."""
    ((seq,),) = db.rows(_SQL["seq"])
    for n, found in words.items():
        seq += 1
        db.run(_SQL["rebuilt"], (found.passages, seq, n))
    db.run(_SQL["set_seq"], (seq,))


def _drop_all_misfits(db: Connection) -> None:
    for number, dimension in db.rows(_SQL["models"]):
        _drop_misfits(db, number, dimension)


def _drop_misfits(db: Connection, model: int, dimension: int) -> None:
    values = {"first": model << 40, "last": (model + 1 << 40) - 1, "mask": (1 << 40) - 1, "width": dimension * 4}
    ((seq,),) = db.rows(_SQL["seq"])
    for key, n in db.rows(_SQL["misfits"], values):
        seq += 1
        db.run(_SQL["drop_vector"], (key,))
        db.run(_SQL["drop_code"], (key,))
        db.run(_SQL["marked"], (seq, n))
    db.run(_SQL["set_seq"], (seq,))


def _schema(db: Connection) -> Iterator[Finding]:
    ((found,),) = db.rows("pragma user_version")
    yield Finding("schema", "pass" if found == latest() else "fail", f"version {found}")


def _integrity(db: Connection) -> Iterator[Finding]:
    try:
        bad = [row[0] for row in db.rows("pragma integrity_check(10)") if row[0] != "ok"]
        broken = db.rows("pragma foreign_key_check")
    except EngrainError as exc:
        bad, broken = [str(exc)], []
    if bad or broken:
        why = "; ".join(map(str, bad)) or f"{len(broken)} rows point to rows that are gone"
        yield Finding("integrity", "fail", why, "restore a copy, or export what can be read")
    else:
        yield Finding("integrity", "pass", "every page and every reference is sound")


def _slots(db: Connection) -> Iterator[Finding]:
    ((twice,),) = db.rows(_SQL["slots"])
    if twice:
        why = f"{twice:,} slots have two values that hold now"
        yield Finding("slots", "fail", why, "engrain slots shows them; engrain forget ID the one that is wrong")
    else:
        yield Finding("slots", "pass", "no slot has two values that hold now")


def _indexes(db: Connection) -> Iterator[Finding]:
    ((wordless, orphans, halves),) = db.rows(_SQL["indexes"])
    if wordless or orphans or halves:
        why = f"{wordless} items without words, {orphans} vectors without an item, {halves} vectors without codes"
        yield Finding("indexes", "fail", why, "engrain doctor --rebuild")
    else:
        yield Finding("indexes", "pass", "every item has its words, every vector its item and its codes")


def _size(path: os.PathLike[str]) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:  # a log may go at any moment
        return 0
