"""Check input values against their types and limits, and convert values to plain JSON."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any

from engrain.core.errors import BadText, EmptyText, InvalidInput, TooLarge, UnknownKey

MAX_TEXT = 1_000_000  # bytes of UTF-8: a long book chapter. Larger documents go in as several items.
MAX_QUERY = 100_000
MAX_NAME = 512
MAX_METADATA = 65_536
MAX_METADATA_DEPTH = 16
MAX_BATCH = 100_000
_SLOT = re.compile(r"[\w.:/+#@'&-]+")

Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def check_text(text: object, what: str = "text", limit: int = MAX_TEXT) -> str:
    """Return the text, or raise a typed error. The text is never repaired."""
    if isinstance(text, str) and not text.strip():
        raise EmptyText(f"{what} is empty or has only white space.")
    return check_sized_text(text, what, limit)


def check_sized_text(text: object, what: str, limit: int = MAX_TEXT) -> str:
    """Return a text that may be empty."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a str, not {type(text).__name__}.")
    _raise_if_nul(text, what)
    size = _utf8_size(text, what)
    if size > limit:
        advice = " Split it and store the parts." if what == "text" else ""
        raise TooLarge(f"{what} has {size:,} bytes; the limit is {limit:,}.{advice}")
    return str.__str__(text)  # of an Enum, or of another subclass of str, the plain text


def check_name(name: object, what: str) -> str:
    """Return a short name, such as a user, a slot, a session or a source."""
    return check_sized_text(name, what, MAX_NAME)


def check_key(name: object, what: str) -> str:
    """Return a name that is not empty."""
    checked = check_name(name, what)
    if not checked.strip():
        raise EmptyText(f"{what} is empty: give it a name, or leave it out.")
    return checked


def check_slot(slot: object) -> str:
    """Return the name of a slot, such as user.city."""
    name = check_key(slot, "slot")
    if _SLOT.fullmatch(name) is None:
        raise InvalidInput(
            f"slot {name!r} is no name of a slot: it may have letters, digits and . _ - / : + # @ & ' but no spaces, "
            "such as user.city."
        )
    return name


def check_optional_key(name: object, what: str) -> str | None:
    return None if name is None else check_key(name, what)


def check_share(value: object, what: str) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidInput(f"{what} must be a number from 0 to 1, not {value!r}.")
    if not 0 <= value <= 1:
        raise InvalidInput(f"{what} must be from 0 to 1, not {value!r}.")
    return float(value)


def check_count(value: object, what: str, least: int = 1, most: int = 10_000) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{what} must be a whole number from {least} to {most:,}, not {value!r}.")
    return value


def check_list(value: object, what: str) -> Sequence[Any]:
    """Return a list, empty for None."""
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(f"{what} must be a list, not {type(value).__name__}.")
    return value


def check_keys(value: object, known: Sequence[str], what: str, *, ignore_empty: bool = False) -> dict[str, Any]:
    """Return a dict that has known keys only; with `ignore_empty`, also unknown keys with an empty value."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a {what} must be a dict, not {type(value).__name__}.")
    for key, content in value.items():
        if key not in known and not (ignore_empty and content in (None, [], {}, "")):
            raise UnknownKey(f"unknown key {key!r} in a {what}. Known: {', '.join(known)}.")
    return dict(value)


def check_metadata(metadata: object) -> dict[str, Json]:
    """Return the metadata as plain JSON. The error names anything else."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata must be a dict, not {type(metadata).__name__}.")
    _raise_if_not_json(metadata, "metadata", (), "store text, numbers, lists or dicts", strict=True)
    plain: dict[str, Json] = _copy_plain(metadata)
    size = len(_ENCODER.encode(plain).encode())
    if size > MAX_METADATA:
        raise TooLarge(f"metadata has {size:,} bytes as JSON; the limit is {MAX_METADATA:,}.")
    return plain


def _copy_plain(value: Any) -> Any:
    """Copy with plain dicts and lists."""
    if isinstance(value, Mapping):
        return {key: _copy_plain(item) for key, item in value.items()}
    return [_copy_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _raise_if_nul(text: str, what: str) -> None:
    if "\x00" in text:
        raise BadText(f"{what} holds a NUL character at position {text.index(chr(0))}; remove it.")


def _utf8_size(text: str, what: str) -> int:
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as exc:
        raise BadText(
            f"{what} is not valid Unicode: a lone surrogate at position {exc.start}. "
            "Decode the bytes with errors='replace' if the source is damaged."
        ) from exc


MAX_JSON = 16_000_000  # bytes
MAX_JSON_DEPTH = 64
# Python itself refuses to write a number of more than 4,300 digits.
_MAX_INTEGER_BITS = 14_000
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def encode_json(value: object, what: object, limit: int = MAX_JSON) -> str:
    """Return the value as compact JSON. The error names anything that is not plain JSON."""
    if type(value) is str and value.isascii():
        text = encode_basestring(value)
    else:
        check_json(value, str(what))
        text = _ENCODER.encode(value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise TooLarge(
            f"{what} has {size:,} bytes as JSON; the limit is {limit:,}. Store it elsewhere and keep its name here."
        )
    return text


def check_json(value: object, where: str, advice: str = "use text, numbers, lists or dicts") -> None:
    if not _is_plain_ascii(value, 0):
        _raise_if_not_json(value, where, (), advice)


def _is_plain_ascii(value: object, depth: int) -> bool:
    """Tell quickly if a value is plain ASCII JSON. Any other value, `_raise_if_not_json` examines."""
    kind = type(value)
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    if value is None or kind is bool:
        return True
    if kind is int:
        return value.bit_length() <= _MAX_INTEGER_BITS  # type: ignore[attr-defined, no-any-return]
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if depth >= MAX_JSON_DEPTH:
        return False
    if kind is dict:
        items = value.items()  # type: ignore[attr-defined]
        return all(type(key) is str and key.isascii() and _is_plain_ascii(item, depth + 1) for key, item in items)
    return (kind is list or kind is tuple) and all(_is_plain_ascii(item, depth + 1) for item in value)  # type: ignore[attr-defined]


def _raise_if_not_json(
    value: object, where: str, inside: tuple[int, ...], advice: str, *, strict: bool = False
) -> None:
    """Raise an error that names the first bad part. `inside` has the identities of the values around this one.

    `strict` is for metadata: the integers and texts that every backend keeps exactly, and fewer levels.
    """
    deepest = MAX_METADATA_DEPTH if strict else MAX_JSON_DEPTH
    if value is None or isinstance(value, bool):
        return
    if id(value) in inside:
        raise InvalidInput(f"{where} contains itself, which JSON cannot express; {advice}.")
    if len(inside) > deepest:
        raise TooLarge(f"{where} is nested deeper than {deepest} levels.")
    if isinstance(value, str):
        _utf8_size(value, where)
        if strict:
            _raise_if_nul(value, where)
    elif isinstance(value, int):
        if strict and not -(2**63) <= value < 2**63:
            raise InvalidInput(f"{where} is a number that does not fit into 64 bits; store it as text.")
        if value.bit_length() > _MAX_INTEGER_BITS:
            raise TooLarge(f"{where} is a number of more than 4,000 digits; store it as text.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{where}: {value} is not a JSON number; {advice}.")
    elif isinstance(value, Mapping if strict else dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"{where}: the key {key!r} is a {type(key).__name__}; keys must be str.")
            _raise_if_not_json(key, where, (), advice, strict=strict)
            _raise_if_not_json(item, f"{where}[{key!r}]", (*inside, id(value)), advice, strict=strict)
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _raise_if_not_json(item, f"{where}[{number}]", (*inside, id(value)), advice, strict=strict)
    else:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:79] + "…"
        raise InvalidInput(f"{where}: {shown} is a {type(value).__name__}, not plain JSON; {advice}.")


def find_similar_names(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the names that differ by a typing error or two, the closest first."""
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, most, 0.75)]


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean …?" for an error message, or ""."""
    found = find_similar_names(name, known)
    return f" Did you mean {found[0]!r}?" if found else ""


def fields_to_plain(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as plain JSON."""
    return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}


def to_plain(value: Any) -> Any:
    """Convert a value to plain JSON. Times become ISO 8601 texts in UTC."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if is_dataclass(value):
        return fields_to_plain(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    return to_plain(value.item()) if hasattr(value, "item") else str(value)


def count_noun(count: int, singular: str, plural: str | None = None) -> str:
    """Join a count and its noun: `1 item`, `2 items`, `1 memory`, `2 memories`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


# A string of valid JSON, with the colon after it if it is a key.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)')


def parse_strict(raw: bytes) -> Any:
    """Parse JSON. Readers differ in which value of a double key they take, so that one file would mean two things.

    orjson.JSONDecodeError if it is not JSON, or nested too deeply. InvalidInput if a key stands twice.
    """
    import orjson  # late: `engrain --help` does without

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
