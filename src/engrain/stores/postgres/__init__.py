"""The store on a Postgres server with pgvector."""

from engrain.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
