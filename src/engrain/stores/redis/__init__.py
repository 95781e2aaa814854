"""Episodes, durable tasks and cached session state in Redis."""

from __future__ import annotations

from engrain.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
