"""Show a long tool output as what it tells, and set the output itself aside for a while."""

from __future__ import annotations

from datetime import timedelta

from engrain.capture.excerpt import excerpt

SHOWN = 2_000  # characters: what an output may have and stay as it is, and what an insight has at most
RAW_LIMIT = 1_000_000  # bytes of UTF-8
RAW_LIFE = timedelta(hours=24)

_NAME = 80


def insight(text: str, tool: str | None = None, failed: bool = False) -> tuple[str, str | None]:
    """What to show of an output, and the output itself if that is not all of it.

    A long one is shown by its form, in its own words: the shape and leading values of JSON, the head and first rows of
    a table, the errors and last lines of a log, the telling sentences of prose; always with how long the whole was.
    The output is cut at RAW_LIMIT, with a mark. What no store can keep, a NUL or half a character, becomes U+FFFD or a
    question mark.
    """
    text = _storable(text)
    if len(text) <= SHOWN:
        return text, None
    name = " ".join((tool or "").split())[:_NAME]
    front = f"{name}: " if name else ""
    # Once more: the name, and what JSON spells as an escape.
    return _storable(front + excerpt(text, SHOWN - len(front), failed)), _capped(text)


def _storable(text: str) -> str:
    mended = text.replace("\x00", "\ufffd")
    try:
        mended.encode()
    except UnicodeEncodeError:
        return mended.encode(errors="replace").decode()
    return mended


def _capped(text: str) -> str:
    if len(text) * 4 <= RAW_LIMIT or (text.isascii() and len(text) <= RAW_LIMIT):
        return text
    whole = text[:RAW_LIMIT].encode()
    if len(text) <= RAW_LIMIT and len(whole) <= RAW_LIMIT:
        return text
    mark = f"\n[cut here: {len(text):,} characters in all]"
    return whole[: RAW_LIMIT - len(mark)].decode(errors="ignore") + mark
