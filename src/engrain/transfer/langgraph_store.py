"""Read the long-term store of LangGraph from its SQLite file or its Postgres database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from engrain.core.errors import BackendMissing, EngrainError, InvalidInput, StoreUnavailable
from engrain.core.formats.imported_notes import make_note
from engrain.core.formats.strict_json import parse_strict
from engrain.core.model.items import Note, check_note
from engrain.core.secrets.urls import hide_secrets
from engrain.transfer.foreign_sqlite import read_foreign_rows

SQLITE_MAGIC = b"SQLite format 3\x00"
TEXT_FIELDS = ("text", "content", "memory", "data", "fact")
_QUERY = "select prefix, key, value, created_at from store order by prefix, key"

Row = tuple[str, str, Any, Any]  # namespace, key, value, created_at


def is_postgres_url(location: object) -> bool:
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://"))


def read_langgraph_notes(location: str) -> Iterator[Note | EngrainError]:
    """Yield a note for each value, in the order of namespaces and keys; an error for one that cannot be a note.

    A value is one of these texts, or else its JSON. Namespace and key become metadata.
    """
    rows = (
        _read_postgres(location)
        if is_postgres_url(location)
        else read_foreign_rows(location, "a store of LangGraph", ["store"], _QUERY)
    )
    for namespace, key, value, at in rows:
        try:
            yield _build_note(namespace, key, value, at)
        except EngrainError as exc:
            yield exc


def _build_note(namespace: str, key: str, value: Any, at: Any) -> Note:
    if isinstance(value, (str, bytes)):
        try:
            value = parse_strict(value.encode() if isinstance(value, str) else value)
        except (ValueError, InvalidInput) as exc:
            raise InvalidInput(f"the value of {namespace}/{key} is not JSON: {str(exc).rstrip('.')}.") from exc
    fields = value if isinstance(value, dict) else {}
    text = next((fields[name] for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    written = json.dumps(value, ensure_ascii=False) if text is None else text
    metadata = {"namespace": namespace, "key": key}
    happened = str(at).replace(" ", "T") if at else None
    if happened and "T" in happened and "+" not in happened and not happened.endswith("Z"):
        happened += "Z"  # SQLite's clock is in UTC
    return check_note(make_note("langgraph", written, f"{namespace}\x1f{key}", metadata=metadata, occurred_at=happened))


def _read_postgres(url: str) -> list[Row]:
    try:
        import psycopg
    except ImportError as exc:
        raise BackendMissing("The Postgres driver", "postgres") from exc
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            connection.read_only = True
            return connection.execute(_QUERY).fetchall()
    except psycopg.errors.UndefinedTable as exc:
        raise InvalidInput(f"{hide_secrets(url)} has no table `store`: it is not a store of LangGraph.") from exc
    except psycopg.Error as exc:
        raise StoreUnavailable(f"{hide_secrets(url)} cannot be read: {type(exc).__name__}.") from exc
