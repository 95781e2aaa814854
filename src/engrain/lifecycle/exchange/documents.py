"""Read a whole file as one JSON document."""

from __future__ import annotations

import json
from typing import BinaryIO

import orjson

from engrain.core.errors import BadText, InvalidInput, TooLarge
from engrain.lifecycle.exchange.lines import BOM

MAX_DOCUMENT = 1 << 29


def document(file: BinaryIO) -> object:
    raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise TooLarge(f"the file has more than {MAX_DOCUMENT:,} bytes. Split its list into several files.")
    return parsed(raw)


def parsed(raw: bytes) -> object:
    raw = raw.removeprefix(BOM)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        if "surrogate" in exc.msg:
            return _mended(raw)
        kind = BadText if "UTF-8" in exc.msg else InvalidInput
        cut = " It may have been cut off." if exc.pos >= len(exc.doc) else ""
        raise kind(f"the file is not JSON: {exc.msg}, line {exc.lineno}.{cut}") from exc


def _mended(raw: bytes) -> object:
    """Chats cut texts in the middle of a picture's two halves: the half that stays becomes a question mark."""
    try:
        return orjson.loads(json.dumps(json.loads(raw), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"the file is not JSON: {exc}.") from exc
