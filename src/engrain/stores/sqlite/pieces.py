"""Where in the file a scope's rows, texts and names are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load

_SQL = load("erasing.sql")
_PAGE = 2_000
_VECTOR = 64  # bytes that tell one from another

# Table by table, the columns in which something was said or named.
_TEXTS: dict[str, tuple[str, ...]] = {
    "item": ("text", "metadata", "speaker", "role", "slot", "subject", "relation", "object"),
    "source": ("name",),
    "session": ("session",),
    "summary": ("text",),
    "episode": ("text", "data", "key"),
    "raw_text": ("text",),
    "request": ("id",),
    "trial": ("note", "task"),
    "task": ("task", "goal", "outcome", "worker"),
    "step": ("name", "input", "key", "error", "result"),
    "snapshot": ("body",),
    "large_result": ("body",),
    "event": ("event", "payload"),
}
_COUNTED = (
    "item", "source", "episode", "raw_text", "session", "summary", "progress", "request", "trial", "task", "step",
    "snapshot", "large_result", "event",
)  # fmt: skip
# An item takes its sources, cites, entities, words, trials and episodes along; a task its steps and snapshot.
_DROPPED = (
    "raw_text", "episode", "item", "session", "summary", "progress", "request", "task", "large_result", "event",
)  # fmt: skip

_OF_SESSION = ("episode", "summary", "progress", "session")


def counts(db: Connection, scope: int) -> dict[str, int]:
    """The rows of each kind."""
    found = {}
    for table in _COUNTED:
        sql = f"select count(*) from {table} where scope = ?"
        ((found[table],),) = db.rows(sql, (scope,))
    found["vector"] = db.rows(_SQL["count_vectors"], (scope,))[0][0]
    return found


def drop(db: Connection, scope: int) -> None:
    for statement in ("drop_codes", "drop_vectors"):
        db.run(_SQL[statement], (scope,))
    for table in _DROPPED:
        db.run(f"delete from {table} where scope = ?", (scope,))


def passed_over(db: Connection) -> dict[str, int]:
    """Rows of scopes that were erased, by the tables that there are: the lists above are what is to be checked."""
    sql = "select count(*) from {} where scope in (select scope from scope where state = 3)"
    return {table: db.rows(sql.format(table))[0][0] for (table,) in db.rows(_SQL["scoped"])}


def count_session(db: Connection, scope: int, session: str) -> dict[str, int]:
    """What a session has besides its items."""
    sql = "select count(*) from {} where scope = ? and session = ?"
    return {table: db.rows(sql.format(table), (scope, session))[0][0] for table in _OF_SESSION}


def drop_session(db: Connection, scope: int, session: str) -> None:
    for table in _OF_SESSION:
        db.run(f"delete from {table} where scope = ? and session = ?", (scope, session))


def texts(db: Connection, scope: int | None) -> Iterator[str]:
    """Everything that was said or named, of one scope; or of all, with the store's own words."""
    names = "select tenant, agent, user from scope where ?1 is null or scope = ?1"
    yield from (value for row in db.rows(names, (scope,)) for value in row if value)
    if scope is None:
        yield from (text for (text,) in db.rows(_SQL["own_texts"]) if text)
    for table, columns in _TEXTS.items():
        for column in columns:
            sql = f"select {column} from {table} where (?1 is null or scope = ?1) and length({column}) > 2"
            yield from (text for (text,) in db.rows(sql, (scope,)))


def vectors(db: Connection, scope: int | None) -> Iterator[bytes]:
    """Of one scope how each begins; of all scopes the whole of each, since a part may be alike anywhere."""
    most = _VECTOR if scope is not None else 1 << 30
    yield from (bytes(start) for (start,) in db.rows(_SQL["vector_pieces"], {"scope": scope, "most": most}))


def part(db: Connection, scope: int, numbers: Sequence[int], session: str | None) -> Iterator[bytes]:
    """Of some items with what hangs on them, and of what a session has besides."""
    for start in range(0, len(numbers), _PAGE):
        page = as_json(numbers[start : start + _PAGE])
        for (text,) in db.rows(_SQL["part_texts"], {"ns": page}):
            yield text.encode()
        for (start_of,) in db.rows(_SQL["part_vectors"], {"ns": page, "most": _VECTOR}):
            yield bytes(start_of)
    for (text,) in db.rows(_SQL["session_texts"], (scope, session)):
        yield text.encode()
