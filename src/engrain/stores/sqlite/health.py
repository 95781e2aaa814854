"""Report how a store is and how it is deployed, and rebuild its search index."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw

from engrain.core.errors import EngrainError, ReadOnlyStore, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Words
from engrain.core.model.queries import Finding, StoreStatus
from engrain.core.text.passages import index_words
from engrain.ports.storage import check_owners, check_slots, is_open_to_others, on_encrypted_disk
from engrain.stores.sqlite.checksums import accept_rows, build_counter_raise, find_damage
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.dialect import IndexRows, SqliteDialect
from engrain.stores.sqlite.index.view import IndexCache
from engrain.stores.sqlite.opening import StoreFile
from engrain.stores.sqlite.schema import LIST_OBJECTS, find_fault, latest_version
from engrain.stores.sqlite.syntax import MODEL_SHIFT, load_sql
from engrain.stores.sqlite.writer import WriteQueue

_SQL = load_sql()
_log = logging.getLogger("engrain")
_BATCH = 500
_LITTLE_SPACE_BYTES = 100_000_000
_NO_SPACE_BYTES = 5_000_000  # the size of the log before it is written back
# A log that is written back in time stays below this size.
_LARGE_LOG_BYTES, _LOG_RATIO = 6_000_000, 10
_SYNC_FULL = 2  # of the pragma synchronous: every commit waits for the disk


class Health:
    """Methods of the store; it supplies the attributes."""

    dialect: SqliteDialect
    index: IndexCache
    lost_commits: int
    _file: StoreFile
    _writer: WriteQueue

    def status(self, model: str | None = None) -> StoreStatus:
        rows = self.dialect.snapshot(lambda db: db.rows(_SQL["count_store"], {"model": model}))
        ((items, open_items, scopes, last_change, unembedded, pending, records),) = rows
        return StoreStatus(
            backend="sqlite",
            location=str(self._file.path or ":memory:"),
            schema=latest_version(),
            items=items,
            open_items=open_items,
            scopes=scopes,
            bytes=sum(_size(path) for path in self._file.files()),
            seq=last_change,
            unembedded=unembedded,
            purge_pending=bool(pending),
            records=records,
            details={
                "sqlite": apsw.sqlite_lib_version(),
                "journal": self._file.journal,
                "encrypted": self._file.key is not None,
            },
        )

    def check(self) -> list[Finding]:
        def examine(db: Connection) -> list[Finding]:
            found = (
                _check_schema(db, self._file),
                _check_integrity(db, self.lost_commits),
                check_slots(db.rows(_SQL["count_double_slots"])[0][0]),
                _check_indexes(db),
                _check_purge(db, self._file),
            )
            return [finding for finding in found if finding]

        return [self._check_engine(), *self.dialect.snapshot(examine), *self._check_disk()]

    def deployment(self) -> list[Finding]:
        owners = self.dialect.snapshot(lambda db: db.rows(_SQL["count_owners"]))
        if self._file.path is None:
            return [self._check_sync(), check_owners(*owners[0])]
        path = self._file.path
        if not path.exists():
            raise StoreError(f"{path} was removed or renamed while open. Put it back, then restart the program.")
        found = [*_check_writable(path), self._check_file_system(path), self._check_rights(), self._check_encryption()]
        return [self._check_sync(), *found, check_owners(*owners[0])]

    def search_state(self, scope: Scope) -> Finding:
        state = self.index.usage()
        used, cap = f"{state['process'] / 1e6:,.1f} MB", f"{state['cap'] / 1e6:,.1f} MB"
        if state["over_cap"]:
            why = f"this memory needs more than the {cap} that search may hold, so every search reads it anew"
            return Finding("search", "warn", why, "raise cache_bytes in [stores] of the settings file")
        mapped = "; the rest is in mapped files" if state["mapped"] else ""
        return Finding("search", "pass", f"search holds {used} of at most {cap}{mapped}")

    def models(self) -> dict[str, int]:
        rows = self.dialect.snapshot(lambda db: db.rows(_SQL["count_embedded"]))
        return {key: count for key, count in rows if count}

    def drop_model(self, model: str, limit: int) -> int:
        def drop(db: Connection) -> int:
            keys = [key for (key,) in db.rows(_SQL["find_vector_keys"], {"model": model, "limit": limit})]
            _drop_vectors(db, keys)
            return len(keys)

        return self.dialect.transaction(drop)

    def rebuild(self) -> int:
        if self._file.read_only:
            raise ReadOnlyStore(self._file.explain_read_only())

        def write(db: Connection, rows: list[Row], words: dict[int, Words]) -> None:
            before = {n: text for n, text, *_ in rows}
            now = db.rows(_SQL["load_texts_between"], {"first": rows[0][0], "last": rows[-1][0]})
            same = [n for n, text in now if before.get(n) == text]
            index = IndexRows(db)
            for n in same:
                index.replace_words(n, words[n])
            index.rewrite_codes(same)
            db.many(_SQL["set_passages"], [{"passages": words[n].passages, "n": n} for n in same])
            _mark_changed(db, same)

        if accepted := self.dialect.transaction(accept_rows):
            _log.warning(
                "%d damaged rows of %s were kept as they are, or left to be made anew", accepted, self._file.path
            )
        # A transaction for each batch: other writers come in between, and texts that they changed are left alone.
        count, last = 0, 0
        while rows := self.dialect.snapshot(
            lambda db: db.rows(_SQL["load_indexed_texts"], {"after": last, "limit": _BATCH})  # noqa: B023
        ):
            words = {n: index_words(text, speaker, slot) for n, text, speaker, slot in rows}
            self.dialect.transaction(lambda db: write(db, rows, words))  # noqa: B023
            count, last = count + len(rows), rows[-1][0]
        self.dialect.transaction(_drop_misfit_vectors)
        self.index.clear()
        return count

    def _check_engine(self) -> Finding:
        return Finding("engine", "pass", f"SQLite {apsw.sqlite_lib_version()}, journal: {self._file.journal}")

    def _check_disk(self) -> Iterator[Finding]:
        if self._file.path is None:
            return
        free, used = shutil.disk_usage(self._file.path.parent).free, sum(map(_size, self._file.files()))
        room = f"{free / 1e9:,.1f} GB" if free >= 1e9 else f"{free / 1e6:,.1f} MB"
        state, advice = f"{room} free, the store takes {used / 1e6:,.1f} MB", "free some space on its disk"
        if free < _NO_SPACE_BYTES:
            yield Finding("disk", "fail", f"{state}: writes are refused, or soon will be", advice)
        elif (log := self._file.log_size()) > max(_LARGE_LOG_BYTES, _LOG_RATIO * _size(self._file.path)):
            why = f"{state}, {log / 1e6:,.1f} MB of it in the log, which a long read keeps from being written back"
            yield Finding("disk", "warn", why, "restart the programs that have the store open for long")
        elif free < max(_LITTLE_SPACE_BYTES, used):
            # A backup, a restore and an upgrade of the schema each write a second copy.
            yield Finding("disk", "warn", f"{state}: not enough for a copy of it", advice)
        else:
            yield Finding("disk", "pass", state)

    def _check_sync(self) -> Finding:
        if self._file.path is None:
            why = "the store is in memory, so nothing survives this process"
            return Finding("sync", "warn", why, 'open a file instead: Memory("agent.db")')
        # Each connection has a level of its own: the level of the writer counts.
        run = self.dialect.snapshot if self._file.read_only else self._writer.run_alone
        ((level,),) = run(lambda db: db.rows("pragma synchronous"))
        if level < _SYNC_FULL:
            why = f"synchronous is {level}: a power cut may take acknowledged writes"
            return Finding("sync", "fail", why, "restart the program; engrain sets it to full when it opens")
        return Finding("sync", "pass", f"every commit waits for the disk (synchronous {level}, {self._file.journal})")

    def _check_file_system(self, path: Path) -> Finding:
        if not self._file.remote:
            return Finding("file system", "pass", f"{path} is on a local disk")
        why = f"{path} is on a network file system, where locks may fail and a write-ahead log cannot be"
        fix = f"`engrain copy {shlex.quote(str(path))} NEW`, with NEW on a local disk; or a postgresql:// store"
        return Finding("file system", "warn", why, fix)

    def _check_rights(self) -> Finding:
        # The lock and the shared memory hold no content.
        content = (path for path in self._file.files() if not path.name.endswith(("-lock", "-shm")))
        found = [path for path in content if is_open_to_others(path)]
        if not found:
            return Finding("rights", "pass", "no other user of this machine can read the store's files")
        names = ", ".join(path.name for path in found)
        why = f"other users of this machine can read {names}"
        return Finding("rights", "warn", why, f"`chmod 600 {shlex.join(map(str, found))}`")

    def _check_encryption(self) -> Finding:
        assert self._file.path is not None
        if self._file.key is not None:
            return Finding("encryption", "pass", "the file is encrypted with a key")
        if on_encrypted_disk(self._file.path):
            return Finding("encryption", "pass", "the file is plain, on a disk that is encrypted")
        why = "neither the file nor its disk is encrypted, as far as can be seen: who copies the file reads it"
        own = shlex.quote(str(self._file.path))
        copy = f"`engrain backup COPY --store {own}`, `ENGRAIN_KEY=KEY engrain restore COPY {own} --force --yes`"
        return Finding("encryption", "warn", why, f'encrypt the disk; or `pip install "engrain[encryption]"`, {copy}')


def _check_schema(db: Connection, file: StoreFile) -> Finding:
    ((version,),) = db.rows("pragma user_version")
    if version != latest_version():
        return Finding("schema", "fail", f"version {version}", "restart the program; it brings the store up to date")
    if fault := find_fault(db.rows(LIST_OBJECTS), version):
        return Finding("schema", "fail", fault, "restore a backup; or undo the change with the sqlite3 program")
    return Finding("schema", "pass", f"version {version}, with every table, index and trigger as engrain makes them")


def _check_integrity(db: Connection, lost_commits: int) -> Finding:
    try:
        bad = [row[0] for row in db.rows("pragma integrity_check(10)") if row[0] != "ok"]
        broken = db.rows("pragma foreign_key_check")
        bad += find_damage(db)
    except EngrainError as exc:
        bad, broken = [str(exc)], []
    if bad or broken:
        bad += [f"{len(broken)} rows point to rows that are gone"] if broken else []
        fix = "restore a backup; without one, `engrain doctor --rebuild` keeps the rows as they are now"
        return Finding("integrity", "fail", "; ".join(map(str, bad)), fix)
    if lost_commits:
        why = f"the last {lost_commits:,} commits were missing when the file was opened: its log was lost or cut"
        return Finding("integrity", "warn", why, "restore a backup if it has more")
    return Finding("integrity", "pass", "every page, every row and every reference is sound")


def _check_indexes(db: Connection) -> Finding:
    ((wordless, orphans, halves),) = db.rows(_SQL["count_index_faults"])
    if wordless or orphans or halves:
        why = f"{wordless} items without words, {orphans} vectors without an item, {halves} vectors without codes"
        return Finding("indexes", "fail", why, "engrain doctor --rebuild")
    return Finding("indexes", "pass", "every item has its words, every vector its item and its codes")


def _check_purge(db: Connection, file: StoreFile) -> Finding | None:
    if left := [path for path in file.own_copies() if ".restoring" in path.name]:
        why = f"a killed restore left {', '.join(path.name for path in left)}, which may hold what was forgotten"
        return Finding("forgotten", "warn", why, f"open the store again, or `rm {shlex.join(map(str, left))}`")
    if not db.rows(_SQL["find_meta"], {"name": "purge"}):
        return None
    why = "forgotten bytes are still in the log, because a reader holds it"
    return Finding("forgotten", "warn", why, "close other programs that read the store")


def _check_writable(path: Path) -> Iterator[Finding]:
    refused = [place for place in (path, path.parent) if not os.access(place, os.W_OK)]
    if not refused:
        return
    if _is_mounted_read_only(path):
        why = f"{path} can only be read, so that nothing new is kept: its disk is mounted read-only"
        disk = next(parent for parent in path.resolve().parents if parent.is_mount())
        yield Finding("writable", "fail", why, f"`mount -o remount,rw {shlex.quote(str(disk))}`, as root")
    else:
        why = f"{path} can only be read, so that nothing new is kept: you may not write to {refused[0]}"
        yield Finding("writable", "fail", why, f"`chmod u+w {shlex.join(map(str, refused))}`, as their owner")


def _is_mounted_read_only(path: Path) -> bool:
    return sys.platform != "win32" and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a log may go at any time
        return 0


def _drop_misfit_vectors(db: Connection) -> None:
    for model, dimension in db.rows(_SQL["list_vector_models"]):
        first, last = model << MODEL_SHIFT, (model + 1 << MODEL_SHIFT) - 1
        values = {"first": first, "last": last, "mask": (1 << MODEL_SHIFT) - 1, "width": dimension * 4}
        _drop_vectors(db, [key for (key,) in db.rows(_SQL["find_misfit_vectors"], values)])


def _drop_vectors(db: Connection, keys: list[int]) -> None:
    db.many(_SQL["delete_index_vector"], [{"key": key} for key in keys])
    db.many(_SQL["delete_code"], [{"key": key} for key in keys])
    _mark_changed(db, [key & ((1 << MODEL_SHIFT) - 1) for key in keys])


def _mark_changed(db: Connection, items: Iterable[int]) -> None:
    """Give these items new change numbers: the search of every process then reads them again."""
    ((last,),) = db.rows(_SQL["find_last_change"])
    changes = [{"change": change, "n": n} for change, n in enumerate(items, last + 1)]
    db.many(_SQL["mark_changed"], changes)
    db.run(build_counter_raise(), (last + len(changes), 0))
