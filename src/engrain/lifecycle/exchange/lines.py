"""Read JSON Lines of any origin, each with its number, and never more of a line than a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import orjson

from engrain.core.errors import BadText, InvalidInput, TooLarge

BOM = b"\xef\xbb\xbf"


class Given(NamedTuple):
    """A line; `raw` is None if it was too long, and its rest was dropped."""

    number: int
    raw: bytes | None


def lines(file: BinaryIO, limit: int) -> Iterator[Given]:
    """Each with the line end that engrain writes, whatever an editor or a transfer has made of it."""
    number = 0
    while raw := file.readline(limit + 1):
        number += 1
        if number == 1:
            raw = raw.removeprefix(BOM)
        if len(raw) <= limit or raw.endswith(b"\n"):
            yield Given(number, raw.rstrip(b"\r\n") + b"\n")
            continue
        while rest := file.readline(limit):
            if rest.endswith(b"\n"):
                break
        yield Given(number, None)


def value_of(raw: bytes | None, limit: int) -> object:
    """The JSON of a line."""
    if raw is None:
        raise TooLarge(f"the line has more than {limit:,} bytes. Split its text and store the parts.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadText(f"not UTF-8: byte {exc.start + 1} of the line is 0x{raw[exc.start]:02x}.") from exc
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        kind = BadText if "surrogate" in exc.msg else InvalidInput
        raise kind(f"not JSON: {exc.msg}, at character {exc.pos + 1}.") from exc
