"""Read a JSON body strictly: every document means one thing, or is refused."""

from __future__ import annotations

import json
import math
from typing import Any

from engrain.core.errors import InvalidInput
from engrain.core.validation import build_object
from engrain.server.problems import Problem

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
_MAX_DIGITS = 20  # enough for 64 bits: a longer number is not converted at all


def parse_json_body(body: bytes) -> Any:
    """Return the value of a JSON document. Problem 400 for broken JSON, 422 for a number that does not fit."""
    if body.startswith(b"\xef\xbb\xbf"):
        raise Problem(400, "the body begins with a byte order mark; send plain UTF-8.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise Problem(400, f"the body is not UTF-8: byte {exc.start} is 0x{body[exc.start]:02x}.") from exc
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as exc:
        raise Problem(400, f"the body is not JSON: {exc.msg} at character {exc.pos}.") from exc
    except RecursionError as exc:
        raise Problem(400, "the body is nested too deeply.") from exc
    except InvalidInput as exc:
        raise Problem(400, str(exc)) from exc
    if "\\u0000" in text and _has_nul(value):
        raise Problem(422, "a text holds a NUL character, which no text may have.", "BadText")
    return value


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in name or _has_nul(inner) for name, inner in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS or not MIN_INTEGER <= (value := int(digits)) <= MAX_INTEGER:
        raise Problem(422, f"{digits[:24]} does not fit into 64 bits; send it as text.")
    return value


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Problem(422, f"{digits[:24]} is too large for a number; send it as text.")
    return value


def _refuse_constant(name: str) -> Any:
    raise Problem(400, f"{name} is not JSON.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=build_object,
    parse_int=_parse_integer,
    parse_float=_parse_float,
    parse_constant=_refuse_constant,
)
