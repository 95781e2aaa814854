"""Spell out metadata for filters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def filters_text(metadata: Mapping[str, Any]) -> str | None:
    """What filters look at: plain values and lists of them. A float is written out in full, so that it is compared with
    a whole number as Python does; jsonb keeps every digit."""
    if not metadata:
        return None
    return "{" + ",".join(f"{json.dumps(key)}:{_exact(value)}" for key, value in metadata.items()) + "}"


def _exact(value: object) -> str:
    if isinstance(value, float):
        return format(Decimal(value), "f")
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_exact, value)) + "]"
    return "{}" if isinstance(value, Mapping) else json.dumps(value)
