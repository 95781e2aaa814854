"""Every shared statement is one that both engines take, and every statement that is named is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from postgres_schemas import fresh_schema, member, open_store

from engrain.core.errors import EngrainError
from engrain.stores import relational
from engrain.stores.postgres import dialect as postgres
from engrain.stores.relational.statements import Syntax
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite import syntax as sqlite

RELATIONAL = Path(relational.__file__).parent
PIECES = {"where": "1 = 1", "dimension": "3", "table": "summary", "column": "text"}
# Postgres filters in the statement; SQLite writes an item's number, a row's checksum and the columns that are empty.
OF_AN_ENGINE = {"words", "filters", "clock", "owner", "n", "item", "checksum"}
OF_AN_ENGINE |= {"access_count", "changed", "last_accessed", "retracted_at"}
ASKING = ("rows", "ask", "run", "many", "_load_items", "_ask_query")


def named_statements() -> Iterator[tuple[str, str]]:
    """The literal names of statements that the code asks for."""
    for file in [
        *RELATIONAL.glob("*.py"),
        *RELATIONAL.parent.glob("postgres/*.py"),
        *RELATIONAL.parent.glob("sqlite/dialect.py"),
    ]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ASKING:
                texts = (one.value for one in node.args if isinstance(one, ast.Constant))
                yield from ((file.parent.name, one) for one in texts if isinstance(one, str) and " " not in one)


def test_sqlite_takes_every_statement() -> None:
    store = SqliteStore(":memory:")
    for name, one in sqlite.load_statements().items():
        values = {key: "[]" if key in one.lists else None for key in one.parameters}
        try:
            store.snapshot(lambda db: db.rows(f"explain {one.fill(**PIECES).sql}", values))  # noqa: B023
        except EngrainError as exc:
            pytest.fail(f"{name}: {exc}")
    store.close()


def test_postgres_takes_every_statement() -> None:
    with fresh_schema() as schema:
        open_store(schema).close()
        with member(schema) as connection:
            for name, one in postgres.load_statements().items():
                values = dict.fromkeys(one.parameters)
                try:
                    connection.execute(f"explain {one.fill(**PIECES).sql}".encode(), values)
                except psycopg.Error as exc:
                    pytest.fail(f"{name}: {exc}")


def test_every_named_statement_is_there() -> None:
    found = list(named_statements())
    assert len(found) > 10
    for engine, statements in (("sqlite", sqlite.load_statements()), ("postgres", postgres.load_statements())):
        named = {name for package, name in found if package in ("relational", engine)}
        assert named - statements.keys() == set()


def test_every_statement_is_used() -> None:
    trees = (ast.parse(file.read_text()) for file in RELATIONAL.parent.glob("*/**/*.py"))
    used = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    statements = {**sqlite.load_statements(), **postgres.load_statements()}
    assert [name for name in statements if name not in used] == []


def test_a_statement_of_an_engine_takes_no_more_than_the_shared_one_of_its_name() -> None:
    """Else it is another statement, which hides the shared one by accident."""
    for engine in (sqlite, postgres):
        shared = replace(engine.SYNTAX, package="engrain.stores.relational").load()
        for name, one in shared.items():
            extra = engine.load_statements()[name].parameters - one.parameters - OF_AN_ENGINE
            assert not extra, name


def test_parameters_are_translated_and_casts_and_quotes_are_not() -> None:
    syntax = Syntax("engrain.stores.postgres", {"in": "= any(:$)"}, pyformat=True)
    made = syntax._prepare("x", "select ':no', 5 % 2, n::text from item where id {in:ids} and scope = :scope")
    assert made.sql == "select ':no', 5 %% 2, n::text from item where id = any(%(ids)s) and scope = %(scope)s"
    assert (made.parameters, made.lists) == ({"ids", "scope"}, {"ids"})
