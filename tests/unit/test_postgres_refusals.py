"""A server that will not have us: who is told what, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from postgres_schemas import fresh_schema, open_store
from servers import postgres

from engrain.cli.main import root
from engrain.core.errors import ConfigError, ReadOnlyStore, StoreError, StoreUnavailable
from engrain.stores.postgres import PostgresStore

USER = "refused"


@pytest.fixture(scope="module", autouse=True)
def user() -> Iterator[None]:
    """Somebody who needs a password, in a database without pgvector."""
    server = postgres()
    server.run(f"create role {USER} login password 'right'", "create database bare")
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n{before}")
    server.run("select pg_reload_conf()")
    yield
    rules.write_text(before)
    server.run("select pg_reload_conf()", "drop database bare", f"drop role {USER}")


def url(password: str = ":right", database: str = "postgres") -> str:
    return f"postgresql://{USER}{password}@127.0.0.1:{postgres().port}/{database}?timeout=5"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (lambda: url(":wrong"), r"password authentication failed.*PGPASSWORD"),
        (lambda: url(""), r"no password supplied.*PGPASSWORD"),
        (lambda: url(database="nowhere"), r'database "nowhere" does not exist.*createdb'),
        (lambda: url(database="bare"), r"pgvector is not there.*create extension vector"),
    ],
    ids=["wrong password", "no password", "no database", "no pgvector"],
)
def test_a_refusal_says_what_to_do(where: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        PostgresStore(where())  # type: ignore[operator]
    assert "right" not in str(caught.value)
    assert "wrong@" not in str(caught.value)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"Connection refused.*tried postgresql://ana@127.0.0.1:1/db"):
        PostgresStore("postgresql://ana:secret@127.0.0.1:1/db?timeout=2")


def test_a_role_without_rights_is_told_so() -> None:
    with pytest.raises(ReadOnlyStore, match="permission denied"):
        PostgresStore(f"{url()}&schema=nothing_of_ours")
    with pytest.raises(StoreError, match="holds no memory in its schema 'nothing_of_ours'"):
        PostgresStore(f"{url()}&schema=nothing_of_ours", read_only=True)
    with fresh_schema() as schema:
        open_store(schema).close()
        with pytest.raises(ReadOnlyStore, match=f"permission denied for schema {schema}"):
            PostgresStore(f"{url()}&schema={schema}")


def test_doctor_warns_of_a_role_above_row_security() -> None:
    with fresh_schema() as schema:
        where = f"{postgres().url('postgres')}?schema={schema}"
        PostgresStore(where).close()
        result = CliRunner().invoke(root, ["--store", where, "doctor"])
        told = " ".join(result.output.split())
    assert "! 20 isolation this role ignores row-level security" in told, result.output
    assert "Fix: connect as a role that is neither superuser nor BYPASSRLS" in told
