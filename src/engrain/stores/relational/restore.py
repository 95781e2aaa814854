"""Write rows of another store as they are, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model import rows as transfer
from engrain.core.model.audit import AuditHead, encode_details, write_head
from engrain.core.model.items import Vectors, Words
from engrain.core.model.rows import ChangeToken, Row, RowKind
from engrain.core.text.passages import index_words
from engrain.core.text.tokenizer import fold_entity
from engrain.stores.relational.dialect import Dialect, ScopeKey, Transaction
from engrain.stores.relational.dump import find_change_token
from engrain.stores.relational.rows import write_answer, write_episode, write_metadata, write_time
from engrain.stores.relational.scopes import find_user, hide_user
from engrain.stores.relational.usage import UsageCounts

PAGE = 500  # rows whose words and vectors are in memory until they are written together
Name = tuple[ScopeKey, str]
Values = dict[str, Any]
Answer = TypeVar("Answer")
_RELATION = ("subject", "relation", "object")  # columns of an item
# By kind: the statement, and the columns that are parts of the key behind the scope.
_PLAIN: Mapping[RowKind, tuple[str, ...]] = {
    "session": ("restore_session", "session"),
    "summary": ("store_summary", "session"),
    "progress": ("restore_progress", "session", "work"),
    "event": ("restore_event", "task", "event"),
    "erased": ("restore_receipt",),
    "hold": ("restore_hold",),
}


class _RollBack(Exception):
    """Ends the transaction of a preview without an error for its caller."""


class ItemRow(NamedTuple):
    row: Row
    words: Words
    vectors: Sequence[Vectors]  # one for each model


class Page(NamedTuple):
    """Rows to write together. `items` are made from those that are items, before anybody waits for the transaction."""

    rows: Sequence[Row]
    items: Sequence[ItemRow]


class Restore:
    """A part of the store."""

    dialect: Dialect
    usage: UsageCounts

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        key = next((bytes.fromhex(row.values["key"]) for row in rows if row.kind == "store"), self.dialect.key)
        pages = [_make_page(rows[start : start + PAGE]) for start in range(0, len(rows), PAGE)]
        items = [item for page in pages for item in page.items]
        self.dialect.prepare_index(
            {vectors.model: len(vectors.rows[0]) // 4 for item in items for vectors in item.vectors}
        )
        scopes = {row.scope for row in rows if row.kind not in transfer.STORE_KINDS}

        def do(tx: Transaction) -> None:
            self._adopt_key(tx, key)
            keys = tx.open_scopes(scopes, lock=since.scopes if since else ())
            if since is not None and find_change_token(tx, key, since.scopes) != since:
                raise Conflict("something was forgotten or erased here meanwhile.")
            _, now = tx.begin_write()
            run = RestoreRun(tx, self.dialect, keys, now)
            for page in pages:
                run.write_page(page)
            run.finish()
            for subject_hash in (row.key[0] for row in rows if row.kind == "hold" and row.values["hidden"]):
                if user := find_user(tx, subject_hash):
                    hide_user(tx, user)

        # Doing it twice changes nothing.
        self.dialect.write(None, do, repeat=True)
        self.dialect.key = key
        self.dialect.after_writes(len(items))
        # Not inside: it is the caller's code, which must not run in a transaction.
        for page in pages if done else ():
            done(len(page.rows))  # type: ignore[misc]

    def preview(self, do: Callable[[], Answer]) -> Answer:
        self.usage.write_all()  # a write takes the counted uses along, and the rollback would lose them
        answers: list[Answer] = []

        def run() -> None:
            answers.append(do())
            raise _RollBack

        with suppress(_RollBack):
            self.dialect.in_transaction(run)
        return answers[-1]  # the last one: a transaction that failed is tried again

    def _adopt_key(self, tx: Transaction, key: bytes) -> None:
        ((stored,),) = tx.rows("load_key")
        if bytes.fromhex(stored) == key:
            return
        if tx.rows("find_any_row")[0][0]:
            raise Conflict(f"{self.dialect.name} holds a memory already. Copy into a new store.")
        tx.run("store_key", key=key.hex())


def _make_page(rows: Sequence[Row]) -> Page:
    # Of two rows with one key the last one counts.
    items = {row.key: row for row in rows if row.kind == "item"}.values()
    return Page(rows, [_make_item_row(row) for row in items])


def _make_item_row(row: Row) -> ItemRow:
    words = index_words(row.values["text"], row.values["speaker"], row.values["slot"])
    return ItemRow(row, words, [Vectors(model, rows) for model, rows in transfer.row_to_vectors(row).items()])


@dataclass(slots=True)
class RestoreRun:
    """One restore inside its transaction. A kind of row that is not plain has a method of its name."""

    tx: Transaction
    dialect: Dialect
    keys: Mapping[Scope, ScopeKey]
    now: int
    newest: int = 0
    changed: set[ScopeKey] = field(default_factory=set)
    items: dict[Name, int] = field(default_factory=dict)
    tasks: dict[Name, int] = field(default_factory=dict)

    def write_page(self, page: Page) -> None:
        if page.items:
            self._write_items(page.items)
        others = {(row.kind, row.key): row for row in page.rows if row.kind not in ("store", "item")}
        for kind, rows in groupby(others.values(), key=lambda row: row.kind):
            write = getattr(self, f"_write_{kind}", partial(self._write_plain, kind))
            write(list(rows))

    def finish(self) -> None:
        self.tx.end_write(self.changed)
        if self.newest > self.now:
            self.tx.run("advance_time", at=self.newest)

    # Items

    def _write_items(self, items: Sequence[ItemRow]) -> None:
        names = [(self._key(item.row), item.row.key[0]) for item in items]
        replaced = self._find_stored(names)
        for statement in ("delete_sources", "delete_entities"):
            self.tx.many(statement, [{"scope": scope, "item": n} for (scope, _), n in replaced.items()])
        self.tx.many("restore_item", (self._item_values(item.row, item.words) for item in items))
        self._find_items(names)
        sources, entities = list[Values](), list[Values]()
        for (scope, id_), item in zip(names, items, strict=True):
            values = item.row.values
            owner, relation = {"scope": scope, "item": self.items[scope, id_]}, values["relation"] or {}
            for number, (kind, name) in enumerate(values["sources"]):
                sources.append({**owner, "number": number, "kind": kind, "name": name})
            entities += [{**owner, "name": fold_entity(relation[end])} for end in ("subject", "object") if relation]
        self.tx.many("restore_source", sources)
        self.tx.many("restore_entity", entities)
        self._write_index(items, replaced)
        self.changed |= {scope for scope, _ in names}
        self._reach(item.row.values["recorded_at"] for item in items)

    def _write_index(self, items: Sequence[ItemRow], replaced: Mapping[Name, int]) -> None:
        by_scope: dict[Scope, list[ItemRow]] = {}
        for item in items:
            by_scope.setdefault(item.row.scope, []).append(item)
        for scope, own in by_scope.items():
            key, inside = self.keys[scope], self.tx.within(scope, self.keys[scope])
            names = [(key, item.row.key[0]) for item in own]
            inside.delete_index([replaced[name] for name in names if name in replaced])
            numbered = [(self.items[name], item) for name, item in zip(names, own, strict=True)]
            inside.write_index(
                [(n, item.words, vectors) for n, item in numbered for vectors in item.vectors or (None,)]
            )
            for item in own:
                if item.row.values["retracted_at"] is not None:
                    inside.retract_index(item.row.key[0])

    def _find_stored(self, names: Sequence[Name]) -> dict[Name, int]:
        """The numbers of those items that are here already."""
        owners = {id_: scope for scope, id_ in names}
        found = self.tx.rows("find_items_anywhere", ids=list(owners))
        for scope, id_, _ in found:
            if scope != owners[id_]:
                raise Conflict(f"the item {id_!r} belongs to another memory of this store.")
        return {(scope, id_): n for scope, id_, n in found}

    def _item_values(self, row: Row, words: Words) -> Values:
        metadata, relation = row.values["metadata"], row.values["relation"] or dict.fromkeys(_RELATION)
        return {
            **row.values,
            **relation,
            **self.dialect.index_values(words, metadata),
            "scope": self._key(row),
            "hash": bytes.fromhex(row.values["hash"]),
            "passages": words.passages,
            "metadata": write_metadata(metadata),
        }

    def _write_cites(self, rows: Sequence[Row]) -> None:
        cites = [(self._key(row), row.key[0], transfer.row_to_cites(row)) for row in rows]
        cited = [(scope, cite.item) for scope, _, found in cites for _, cite in found]
        self._find_items([*((scope, id_) for scope, id_, _ in cites), *cited])
        citing = [{"scope": scope, "item": self._item(scope, id_)} for scope, id_, _ in cites]
        self.tx.many("delete_citations", citing)
        for where, (scope, _, found) in zip(citing, cites, strict=True):
            for number, cite in found:
                values = {"number": number, "span_start": cite.start, "span_end": cite.end}
                self.tx.run("restore_citation", **where, **values, cited=self._item(scope, cite.item))
        self.tx.many("mark_item_changed", citing)
        self.changed |= {scope for scope, _, _ in cites}

    # What else a scope has

    def _write_tombstone(self, rows: Sequence[Row]) -> None:
        self._write_tombstones((self._key(row), row.key[1]) for row in rows)

    def _write_tombstones(self, hashes: Iterable[tuple[ScopeKey, str]]) -> None:
        values = ({"scope": scope, "hash": bytes.fromhex(digest), "at": self.now} for scope, digest in hashes)
        self.tx.many("add_tombstone", values)

    def _write_request(self, rows: Sequence[Row]) -> None:
        for row in rows:
            asked, applied = transfer.row_to_request(row)
            answer = write_answer(applied, bytes.fromhex(asked))
            self.tx.run("restore_request", scope=self._key(row), id=row.key[1], answer=answer, at=self.now)

    def _write_session(self, rows: Sequence[Row]) -> None:
        self._write_plain("session", rows)
        # A session's rank is the number of a change: the next change comes after it.
        self.tx.run("advance_change", change_number=max(row.values["rank"] for row in rows))

    def _write_episode(self, rows: Sequence[Row]) -> None:
        parsed = [(self._key(row), *transfer.row_to_episode(row)) for row in rows]
        self._find_items([(scope, episode.item) for scope, episode, _ in parsed if episode.item is not None])
        for scope, episode, raw in parsed:
            item = None if episode.item is None else self._item(scope, episode.item)
            self.tx.run("delete_episode", scope=scope, id=episode.id)
            self.tx.run("add_episode", scope=scope, **write_episode(episode, item))
            if raw:
                expires = write_time(raw.expires_at)
                self.tx.run("add_raw_text", scope=scope, id=episode.id, expires_at=expires, text=raw.text)

    def _write_trial(self, rows: Sequence[Row]) -> None:
        names = [(self._key(row), row.values["procedure"]) for row in rows]
        self._find_items(names)
        items = ({"scope": name[0], "item": self._item(*name)} for name in names)
        self.tx.many("restore_trial", ({**row.values, **item} for row, item in zip(rows, items, strict=True)))

    def _write_plain(self, kind: RowKind, rows: Sequence[Row]) -> None:
        """Rows whose columns are their values and the parts of their key."""
        statement, *names = _PLAIN[kind]
        of_store = kind in transfer.STORE_KINDS

        def list_values(row: Row) -> Values:
            values = {"at": self.now, **row.values, **dict(zip(names, row.key[1:], strict=False))}
            return values if of_store else {**values, "scope": self._key(row)}

        self.tx.many(statement, map(list_values, rows))

    # Tasks

    def _write_task(self, rows: Sequence[Row]) -> None:
        self.tx.many("restore_task", ({**row.values, "scope": self._key(row)} for row in rows))
        self._find_tasks(rows)
        for row in rows:
            where = {"scope": self._key(row), "task": self._task(row)}
            self.tx.run("delete_snapshot", **where)
            if row.values["snapshot"] is not None:
                self.tx.run("store_snapshot", **where, body=row.values["snapshot"])
        self._reach(row.values[name] for row in rows for name in ("started_at", "ended_at"))

    def _write_step(self, rows: Sequence[Row]) -> None:
        self._find_tasks(rows)
        steps = ({**row.values, "scope": self._key(row), "task": self._task(row)} for row in rows)
        self.tx.many("restore_step", steps)
        self._reach(row.values[name] for row in rows for name in ("began_at", "ended_at"))

    def _write_record(self, rows: Sequence[Row]) -> None:
        for row in rows:
            body = transfer.row_to_body(row)
            values = {**row.values, "space": row.key[1], "key": row.key[2], "body": body}
            self.tx.run("restore_record", **{**values, "scope": self._key(row), "hash": sha256(body).digest()})
        self.tx.run("advance_change", change_number=max(row.values["rank"] for row in rows))
        self._reach(row.values["written_at"] for row in rows)

    # What belongs to the store

    def _write_erased_tombstone(self, rows: Sequence[Row]) -> None:
        keys = {id_: self.tx.add_erased_scope(id_) for id_ in dict.fromkeys(row.key[0] for row in rows)}
        self._write_tombstones((keys[row.key[0]], row.key[1]) for row in rows)

    def _write_erased(self, rows: Sequence[Row]) -> None:
        self._write_plain("erased", rows)
        # A user who comes back begins to write after it.
        self._reach(row.values["at"] + 1 for row in rows)

    def _write_audit(self, rows: Sequence[Row]) -> None:
        for row in rows:
            entry = transfer.row_to_audit(row)
            if isinstance(entry, AuditHead):
                self.tx.run("create_audit_head")
                self.tx.run("store_audit_head", value=write_head(entry))
            else:
                values = {**row.values, "details": encode_details(entry.details)}
                self.tx.run("restore_audit_entry", **values)

    # Keys and numbers

    def _key(self, row: Row) -> ScopeKey:
        return self.keys[row.scope]

    def _reach(self, times: Iterable[int | None]) -> None:
        self.newest = max(self.newest, *(at or 0 for at in times))

    def _find_items(self, names: Iterable[Name]) -> None:
        ids = [id_ for scope, id_ in names if (scope, id_) not in self.items]
        if ids:
            self.items |= {(scope, id_): n for scope, id_, n in self.tx.rows("find_items_anywhere", ids=ids)}

    def _item(self, scope: ScopeKey, id_: str) -> int:
        if (scope, id_) not in self.items:
            raise Conflict(f"the item {id_!r}, which others rest on, is not there: the source has changed. Copy anew.")
        return self.items[scope, id_]

    def _find_tasks(self, rows: Sequence[Row]) -> None:
        scopes, tasks = {self._key(row) for row in rows}, {row.key[1] for row in rows}
        found = self.tx.rows("find_tasks", scopes=list(scopes), tasks=list(tasks))
        self.tasks = {(scope, task): n for scope, task, n in found}

    def _task(self, row: Row) -> int:
        name = self._key(row), row.key[1]
        if name not in self.tasks:
            raise Conflict(f"the task {row.key[1]!r} of a step is not there: the source has changed. Copy anew.")
        return self.tasks[name]
