"""Escape characters that a reader does not see: they hide text, or change how the text around them is read."""

from __future__ import annotations

import re
from collections.abc import Callable

_ALWAYS = (
    (0x00, 0x08), (0x0B, 0x0C), (0x0E, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C),
    (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_ESCAPED = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _ALWAYS) + "]")
# These join the parts of an emoji or the letters of some scripts. Anywhere else they only hide something.
_EMOJI = "\u00a9\u00ae\u203c\u2049\u2122-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED_SCRIPT = "\u0600-\u06ff\u0700-\u074f\u0900-\u0dff"
_JOINERS = re.compile(
    f"(?<![{_EMOJI}0-9#*])[\ufe00-\ufe0f]|(?<![{_EMOJI}\ufe0f])\u200d(?![{_JOINED_SCRIPT}])|"
    f"(?<![{_EMOJI}\ufe0f{_JOINED_SCRIPT}])\u200d|(?<![{_JOINED_SCRIPT}])\u200c|\u200c(?![{_JOINED_SCRIPT}])"
)


def find_invisible(text: str) -> list[int]:
    """Return the places of the invisible characters. White space and the joiners within emoji are none of them."""
    # Twice: one joiner may stand behind another that has nothing to join.
    seen = _JOINERS.sub("\0", _JOINERS.sub("\0", text))
    return [match.start() for match in _ESCAPED.finditer(seen)]


def escape_invisible(text: str) -> str:
    """Write every invisible character as \\uXXXX."""
    return text if text.isascii() and text.isprintable() else _escape_all(text, _escape)


def escape_invisible_json(text: str) -> str:
    """Write the invisible characters of a JSON text in JSON's own escapes: its value stays the same."""
    return text if text.isascii() and "\x7f" not in text else _escape_all(text, _escape_json)


def _escape_all(text: str, escape: Callable[[str], str]) -> str:
    parts, at = [], 0
    for place in find_invisible(text):
        parts += [text[at:place], escape(text[place])]
        at = place + 1
    return "".join([*parts, text[at:]])


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
