"""Values as plain JSON, counts as plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any


def plain_values(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name."""
    return {one.name: plain(getattr(value, one.name)) for one in fields(value)}


def plain(value: Any) -> Any:
    """Only dicts, lists, text, numbers, true, false and null; times as ISO 8601 in UTC."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if is_dataclass(value):
        return plain_values(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return plain(value.item()) if hasattr(value, "item") else str(value)


def count_noun(count: int, one: str, many: str | None = None) -> str:
    """Join a count and its noun: `1 item`, `2 items`, `1 memory`, `2 memories`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
