"""Bind many values as one."""

from __future__ import annotations

import json
from collections.abc import Iterable


def as_json(values: Iterable[int | str]) -> str:
    """One value that json_each reads back."""
    return json.dumps(list(values), ensure_ascii=False)
