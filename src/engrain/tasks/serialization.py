"""What a journal keeps of a value: plain JSON in a versioned envelope, and a fingerprint of arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from engrain.core.errors import StoreCorrupt
from engrain.core.validation import check_json, encode_json

VERSION = 1
_DECODER = json.JSONDecoder()
_SORTING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True)
# Of these the same comes back as went in.
_EXACT = (str, int, float, bool, type(None))
_CONSTANTS = {None: "null", True: "true", False: "false"}
_DUMPS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEAD = f'{{"v":{VERSION},"value":'


def encode(value: object, what: object) -> str:
    """The value in its envelope; anything that is not plain JSON is refused with an error that names it."""
    return f"{_HEAD}{plain(value, what)}}}"


def plain(value: object, what: object) -> str:
    return _CONSTANTS[value] if value is None or value is True or value is False else encode_json(value, what)


def packed(value: str, more: Mapping[str, Any]) -> str:
    """A JSON text in its envelope, with more beside it that only `opened` shows."""
    return f"{_HEAD}{value}{''.join(f',{json.dumps(name)}:{_DUMPS(one)}' for name, one in more.items())}}}"


def decode(text: str | None) -> Any:
    return None if text is None else opened(text)["value"]


def opened(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        found = _DECODER.decode(text)
        version, _ = found["v"], found["value"]
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreCorrupt(f"a recorded result cannot be read: {text[:80]!r}.") from exc
    if version != VERSION:
        raise StoreCorrupt(f"a recorded result has envelope {version}; this engrain knows {VERSION}. Upgrade engrain.")
    return found  # type: ignore[no-any-return]


def as_replayed(value: Any, text: str) -> Any:
    """A value as a replay will return it, given how it was encoded."""
    return value if type(value) in _EXACT else decode(text)


def fingerprint(args: tuple[object, ...], what: str) -> str:
    """Equal for equal arguments, whatever the order of their keys; "" for none."""
    if not args:
        return ""
    for number, value in enumerate(args):
        check_json(value, f"argument {number} of {what}", "bind it with functools.partial or a lambda")
    text = _SORTING.encode(args)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
