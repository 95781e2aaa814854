"""The Postgres schema can be distributed by scope: deploy/citus.sql names every table that holds a scope's data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_schemas import fresh_schema, member, open_store, tables

from engrain import stores as stores_package

CITUS = Path(__file__).parents[2] / "deploy" / "citus.sql"
KEYS = """
select relname, pg_get_indexdef(indexrelid), attname from pg_index
join pg_class on pg_class.oid = indrelid
left join pg_attribute on attrelid = indrelid and attnum = indkey[0]
where indisunique and relnamespace = current_schema()::regnamespace and relname = any(%s)
"""
FOREIGN_KEYS = """
select pg_class.relname, pg_get_constraintdef(pg_constraint.oid) from pg_constraint
join pg_class on pg_class.oid = conrelid
where contype = 'f' and connamespace = current_schema()::regnamespace
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[tuple[psycopg.Connection[Any], list[str]]]:
    with fresh_schema() as schema:
        open_store(schema).close()
        with member(schema) as found:
            yield found, tables(found, schema)


def test_every_key_of_a_table_that_holds_a_scope_begins_with_the_scope(connection: Any) -> None:
    db, scoped = connection
    keys = db.execute(KEYS, (scoped,)).fetchall()
    assert len(keys) > 20
    assert [(table, made) for table, made, first in keys if first != "scope"] == []


def test_every_foreign_key_includes_the_scope_on_both_sides(connection: Any) -> None:
    db, _ = connection
    keys = db.execute(FOREIGN_KEYS).fetchall()
    assert len(keys) > 8
    pattern = r"FOREIGN KEY \(scope, \w+\) REFERENCES \w+\(scope, \w+\)"
    assert [(table, made) for table, made in keys if not re.match(pattern, made)] == []


def test_the_script_distributes_every_table_with_a_scope_and_copies_the_others(connection: Any) -> None:
    db, scoped = connection
    script = CITUS.read_text()
    rows = db.execute(
        "select relname from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'r'"
    ).fetchall()
    assert sorted(re.findall(r"create_distributed_table\('(\w+)', 'scope'", script)) == scoped
    copied = re.findall(r"create_reference_table\('(\w+)'\)", script)
    local = re.findall(r"^-- Local: (\w+)", script, re.MULTILINE)
    assert sorted([*copied, *local]) == sorted({name for (name,) in rows} - set(scoped))


def test_no_statement_updates_the_column_by_which_tables_are_distributed() -> None:
    stores = Path(stores_package.__file__).parent
    files = [*stores.glob("postgres/**/*.sql"), *stores.glob("relational/sql/*.sql"), *stores.glob("postgres/*.py")]
    assert len(files) > 20
    updates = re.compile(r"\bset\s+scope\s*=", re.IGNORECASE)
    assert [file.name for file in files if updates.search(file.read_text())] == []
