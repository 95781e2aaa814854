"""What a journal keeps of a value: plain JSON in a versioned envelope, and a fingerprint of arguments."""

from __future__ import annotations

import hashlib
import json
import math
from json.encoder import encode_basestring
from typing import Any

from engrain.core.errors import BadText, InvalidInput, StoreCorrupt, TooLarge

VERSION = 1
MAX_RESULT = 16_000_000  # bytes of JSON
MAX_DEPTH = 64
# Python itself refuses to write a number of more than 4,300 digits.
_MAX_BITS = 14_000
_DECODER = json.JSONDecoder()
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)
_SORTING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True)
# Of these the same comes back as went in.
_EXACT = (str, int, float, bool, type(None))
_HEAD = f'{{"v":{VERSION},"value":'


def encode(value: object, what: object) -> str:
    """The value in its envelope; anything that is not plain JSON is refused with an error that names it."""
    if value is None or value is True or value is False:
        return f"{_HEAD}{json.dumps(value)}}}"
    if type(value) is str and value.isascii():
        text = encode_basestring(value)
    else:
        if not _plain(value, 0):
            _prove(value, str(what), 0)
        text = _ENCODER.encode(value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_RESULT:
        raise TooLarge(
            f"{what} has {size:,} bytes as JSON; the limit is {MAX_RESULT:,}. Store it, and return its name."
        )
    return f"{_HEAD}{text}}}"


def decode(text: str | None) -> Any:
    if text is None:
        return None
    try:
        found = _DECODER.decode(text)
        version = found["v"]
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreCorrupt(f"a recorded result cannot be read: {text[:80]!r}.") from exc
    if version != VERSION:
        raise StoreCorrupt(f"a recorded result has envelope {version}; this engrain knows {VERSION}. Upgrade engrain.")
    return found["value"]


def as_replayed(value: Any, text: str) -> Any:
    """A value as a replay will return it, given how it was encoded."""
    return value if type(value) in _EXACT else decode(text)


def fingerprint(args: tuple[object, ...], what: str) -> str:
    """Equal for equal arguments, whatever the order of their keys; "" for none."""
    if not args:
        return ""
    for number, value in enumerate(args):
        if not _plain(value, 0):
            _prove(value, f"argument {number} of {what}", 0, "bind it with functools.partial or a lambda")
    text = _SORTING.encode(args)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: object, depth: int) -> bool:
    """Whether it is plain JSON, quickly; if not, or if it is of a subclass, `_prove` finds the words."""
    kind = type(value)
    if kind is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    if value is None or kind is bool:
        return True
    if kind is int:
        return value.bit_length() <= _MAX_BITS  # type: ignore[attr-defined, no-any-return]
    if kind is float:
        return math.isfinite(value)  # type: ignore[arg-type]
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        items = value.items()  # type: ignore[attr-defined]
        return all(type(key) is str and key.isascii() and _plain(one, depth + 1) for key, one in items)
    return (kind is list or kind is tuple) and all(_plain(one, depth + 1) for one in value)  # type: ignore[attr-defined]


def _prove(value: object, where: str, depth: int, advice: str = "return text, numbers, lists or dicts") -> None:
    if value is None or isinstance(value, bool):
        return
    if depth > MAX_DEPTH:
        raise TooLarge(f"{where} is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, str):
        _prove_text(value, where)
    elif isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise TooLarge(f"{where} is a number of more than 4,000 digits: keep it as text.")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{where}: {value} is not a JSON number; {advice}.")
    elif isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(key, str):
                raise InvalidInput(f"{where}: the key {key!r} is a {type(key).__name__}; JSON keys are str.")
            _prove_text(key, where)
            _prove(one, f"{where}[{key!r}]", depth + 1, advice)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            _prove(one, f"{where}[{number}]", depth + 1, advice)
    else:
        raise InvalidInput(f"{where}: {_shown(value)} is a {type(value).__name__}, not plain JSON; {advice}.")


def _prove_text(text: str, where: str) -> None:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as exc:
        raise BadText(f"{where} is not valid Unicode: a lone surrogate at position {exc.start}.") from exc


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:79] + "…"
