"""What counts as acceptable text, and how large each thing may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engrain.core.errors import BadText, EmptyText, InvalidInput, TooLarge

MAX_TEXT = 1_000_000  # bytes of UTF-8: a long book chapter. Larger documents go in as several items.
MAX_QUERY = 100_000
MAX_NAME = 512
MAX_METADATA = 65_536
MAX_DEPTH = 16
MAX_BATCH = 100_000

Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def checked_text(text: object, what: str = "text", limit: int = MAX_TEXT) -> str:
    """The text itself, or a typed error; never a repaired copy."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a str, not {type(text).__name__}.")
    if not text.strip():
        raise EmptyText(f"{what} is empty, or nothing but white space.")
    size = _utf8_size(text, what)
    if size > limit:
        advice = " Split it and store the parts." if what == "text" else ""
        raise TooLarge(f"{what} has {size:,} bytes; the limit is {limit:,}.{advice}")
    return text


def checked_sized(text: object, what: str, limit: int = MAX_TEXT) -> str:
    """A text that may be empty."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a str, not {type(text).__name__}.")
    size = _utf8_size(text, what)
    if size > limit:
        raise TooLarge(f"{what} has {size:,} bytes; the limit is {limit:,}.")
    return text


def checked_name(name: object, what: str) -> str:
    """A short key such as a user, a slot, a session or a source."""
    if not isinstance(name, str):
        raise InvalidInput(f"{what} must be a str, not {type(name).__name__}.")
    size = _utf8_size(name, what)
    if size > MAX_NAME:
        raise TooLarge(f"{what} has {size:,} bytes; the limit is {MAX_NAME}.")
    return name


def checked_key(name: object, what: str) -> str:
    """A name that must not be empty."""
    if not checked_name(name, what).strip():
        raise EmptyText(f"{what} is empty: give it a name, or leave it out.")
    return str(name)


def checked_share(value: object, what: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"{what} must be a number from 0 to 1, not {value!r}.")
    if not 0 <= value <= 1:
        raise InvalidInput(f"{what} must be from 0 to 1, not {value!r}.")
    return float(value)


def checked_count(value: object, what: str, least: int = 1, most: int = 10_000) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{what} must be a whole number from {least} to {most:,}, not {value!r}.")
    return value


def checked_metadata(metadata: object) -> dict[str, Json]:
    """Plain JSON with string keys; anything else is named in the error."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a dict, not {type(metadata).__name__}.")
    size = sum(_json_size(key, value, f"metadata[{key!r}]") for key, value in metadata.items())
    if size > MAX_METADATA:
        raise TooLarge(f"metadata has about {size:,} bytes; the limit is {MAX_METADATA:,}.")
    return {key: _plain(value) for key, value in metadata.items()}


def _plain(value: Any) -> Json:
    """Dicts and lists where the caller gave other kinds of mappings and sequences."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def _utf8_size(text: str, what: str) -> int:
    if "\x00" in text:
        raise BadText(f"{what} holds a NUL character at position {text.index(chr(0))}; remove it.")
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as exc:
        raise BadText(
            f"{what} is not valid Unicode: a lone surrogate at position {exc.start}. "
            "Decode the bytes with errors='replace' if the source is damaged."
        ) from exc


def _json_size(key: object, value: object, where: str, depth: int = 0) -> int:
    if not isinstance(key, str):
        raise InvalidInput(f"{where}: keys must be str, not {type(key).__name__}.")
    return _utf8_size(key, where) + _value_size(value, where, depth)


def _value_size(value: object, where: str, depth: int) -> int:
    if depth > MAX_DEPTH:
        raise TooLarge(f"{where} is nested deeper than {MAX_DEPTH} levels.")
    if value is None or isinstance(value, bool):
        return 5
    if isinstance(value, int):
        # The smallest range that every backend keeps exactly.
        if not -(2**63) <= value < 2**63:
            raise InvalidInput(f"{where}: {value} does not fit into 64 bits; store it as text.")
        return 20
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{where}: {value} is not a JSON number; leave it out or store it as text.")
        return 24
    if isinstance(value, str):
        return _utf8_size(value, where) + 2
    if isinstance(value, Mapping):
        return sum(_json_size(k, v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()) + 2
    if isinstance(value, (list, tuple)):
        return sum(_value_size(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)) + 2
    raise InvalidInput(f"{where}: a {type(value).__name__} is not plain JSON; store text, numbers, lists or dicts.")
