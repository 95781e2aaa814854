"""Encode values for the journal: plain JSON in a versioned envelope, and fingerprints of arguments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from engrain.core.errors import StoreCorrupt
from engrain.core.validation import check_json, encode_json

ENVELOPE_VERSION = 1
_DECODER = json.JSONDecoder()
_SORTING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, sort_keys=True)
_DUMPS = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_HEAD = f'{{"v":{ENVELOPE_VERSION},"value":'
_CONSTANTS: dict[object, str] = {None: "null", True: "true", False: "false"}
_CONSTANT_TYPES = (bool, type(None))
# JSON returns values of these types unchanged.
_EXACT_TYPES = (str, int, float, bool, type(None))


def encode(value: object, what: object) -> str:
    """Encode the value in its envelope. An error about a value that is not plain JSON names it as `what`."""
    return f"{_HEAD}{encode_plain(value, what)}}}"


def encode_plain(value: object, what: object) -> str:
    return _CONSTANTS[value] if type(value) in _CONSTANT_TYPES else encode_json(value, what)


def encode_with_extras(value: str, extras: Mapping[str, Any]) -> str:
    """Put a JSON text into its envelope, with extras beside it that only `decode_envelope` returns."""
    return f"{_HEAD}{value}{''.join(f',{json.dumps(name)}:{_DUMPS(extra)}' for name, extra in extras.items())}}}"


def decode(text: str | None) -> Any:
    return None if text is None else decode_envelope(text)["value"]


def decode_envelope(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        found = _DECODER.decode(text)
        version, _ = found["v"], found["value"]
    except (ValueError, KeyError, TypeError) as exc:
        raise StoreCorrupt(f"a recorded result cannot be read: {text[:80]!r}.") from exc
    if version != ENVELOPE_VERSION:
        known = f"this engrain knows {ENVELOPE_VERSION}"
        raise StoreCorrupt(f"a recorded result has envelope {version}; {known}. Upgrade engrain.")
    return found  # type: ignore[no-any-return]


def convert_as_replayed(value: Any, text: str) -> Any:
    """Return the value as a replay of its encoded text returns it."""
    return value if type(value) in _EXACT_TYPES else decode(text)


def fingerprint_arguments(args: tuple[object, ...], what: str) -> str:
    """Equal for equal arguments, whatever the order of their keys; "" for none."""
    if not args:
        return ""
    for number, value in enumerate(args):
        check_json(value, f"argument {number} of {what}", "bind it with functools.partial or a lambda")
    return hashlib.blake2b(_SORTING.encode(args).encode(), digest_size=16).hexdigest()
