"""Tell whether a value is plain JSON, the only form in which it may outlive its process, and write it as such."""

from __future__ import annotations

import json
import math
from json.encoder import encode_basestring

from engrain.core.errors import BadText, InvalidInput, TooLarge

MAX_JSON = 16_000_000  # bytes
MAX_DEPTH = 64
# Python itself refuses to write a number of more than 4,300 digits.
_MAX_BITS = 14_000
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def json_text(value: object, what: object, limit: int = MAX_JSON) -> str:
    """The value as compact JSON; anything that is not plain JSON is refused with an error that names it."""
    if type(value) is str and value.isascii():
        text = encode_basestring(value)
    else:
        check_plain(value, str(what))
        text = _ENCODER.encode(value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise TooLarge(f"{what} has {size:,} bytes as JSON; the limit is {limit:,}. Store it, and keep its name here.")
    return text


def check_plain(value: object, where: str, advice: str = "use text, numbers, lists or dicts") -> None:
    if not _plain(value, 0):
        _prove(value, where, (), advice)


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


def _prove(value: object, where: str, inside: tuple[int, ...], advice: str) -> None:
    """`inside` are the values that this one is in, by their identity."""
    if value is None or isinstance(value, bool):
        return
    if id(value) in inside:
        raise InvalidInput(f"{where} holds itself, which JSON cannot say; {advice}.")
    if len(inside) > MAX_DEPTH:
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
            _prove(one, f"{where}[{key!r}]", (*inside, id(value)), advice)
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            _prove(one, f"{where}[{number}]", (*inside, id(value)), advice)
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
