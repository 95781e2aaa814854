"""schema.sql is the picture of what the Postgres migrations make, for whoever reads it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import psycopg
from postgres_schemas import fresh_schema, member, open_store

TABLES = """
select relname, string_agg(line, E',\n' order by place) from (
  select relname, attnum as place, '  ' || quote_ident(attname) || ' ' || format_type(atttypid, atttypmod)
    || case when attcollation = 950 then ' collate "C"' else '' end || case when attnotnull then ' not null' else '' end
    || case attidentity when 'a' then ' generated always as identity' else '' end
    || coalesce(' default ' || pg_get_expr(adbin, adrelid), '') as line
  from pg_class join pg_attribute on attrelid = pg_class.oid
  left join pg_attrdef on adrelid = attrelid and adnum = attnum
  where relnamespace = current_schema()::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped
  union all
  select relname, 1000 + row_number() over (order by conname), '  ' || pg_get_constraintdef(pg_constraint.oid)
  from pg_constraint join pg_class on pg_class.oid = conrelid
  where connamespace = current_schema()::regnamespace and contype in ('p', 'u', 'f', 'c')
) as lines group by relname order by relname
"""
INDEXES = """
select replace(indexdef, current_schema() || '.', '') from pg_indexes
where schemaname = current_schema() and indexname not in (select conname from pg_constraint) order by indexname
"""
SEQUENCES = """
select sequencename from pg_sequences where schemaname = current_schema() and sequencename not like '%\\_n\\_seq'
order by sequencename
"""
FUNCTIONS = """
select proname, pg_get_function_arguments(oid), pg_get_function_result(oid), btrim(prosrc, E' \n') from pg_proc
where pronamespace = current_schema()::regnamespace order by proname
"""
POLICIES = """
select policyname, lower(qual), string_agg(tablename, ', ' order by tablename) from pg_policies
where schemaname = current_schema() group by policyname, qual order by policyname, qual
"""


def picture(connection: psycopg.Connection[Any]) -> str:
    def rows(statement: str) -> list[Any]:
        return connection.execute(statement.encode()).fetchall()

    parts = ["-- What the migrations make. A test compares the two."]
    parts += [f"create sequence {name};" for (name,) in rows(SEQUENCES)]
    parts += [f"create table {name} (\n{lines}\n);" for name, lines in rows(TABLES)]
    parts += ["\n".join(f"{line};" for (line,) in rows(INDEXES))]
    parts += [
        f"create function {name}({arguments}) returns {result} as $$\n{body}\n$$;"
        for name, arguments, result, body in rows(FUNCTIONS)
    ]
    parts += [f"-- Policy {name} of {tables}:\n-- {test}" for name, test, tables in rows(POLICIES)]
    return "\n\n".join(parts) + "\n"


def test_schema_sql_is_the_picture_of_all_migrations() -> None:
    with fresh_schema() as schema:
        open_store(schema).close()
        with member(schema) as connection:
            found = picture(connection)
    assert (files("engrain.stores.postgres") / "schema.sql").read_text("utf-8") == found, "write picture() to it"
