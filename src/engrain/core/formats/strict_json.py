"""Parse JSON of a file from outside: a key that stands twice in an object is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson

from engrain.core.errors import InvalidInput

# A string of valid JSON, with the colon after it if it is a key.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)')


def parse_strict(raw: bytes) -> Any:
    """Parse JSON. Readers differ in which value of a double key they take, so that one file would mean two things.

    orjson.JSONDecodeError if it is not JSON, or nested too deeply. InvalidInput if a key stands twice.
    """
    value = orjson.loads(raw)
    if sum(1 for found in _STRING.finditer(raw) if found[1]) != _count_keys(value):
        try:
            json.loads(raw, object_pairs_hook=build_object)
        except RecursionError as exc:  # orjson reads a little deeper
            raise InvalidInput("a key stands twice in one JSON object, which is nested too deeply to name it.") from exc
    return value


def _count_keys(value: object) -> int:
    count, waiting = 0, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            count += len(part)
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return count


def build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; to be an object_pairs_hook."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInput(f"the key {twice!r:.80} stands twice in one JSON object. Remove one of them.")
    return found
