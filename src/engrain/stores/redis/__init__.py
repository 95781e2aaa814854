"""Episodes, durable tasks and what sessions have at hand, in Redis."""

from __future__ import annotations

from engrain.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
