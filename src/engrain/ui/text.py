"""Show stored text safely: escaped, and with every invisible character made visible."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

Span = tuple[int, int]

_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")
_JOINERS = "\u200c\u200d"  # scripts and emoji need them between two letters
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_BLANKS = frozenset("\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u180e")
_HIDDEN_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")


def show_text(text: str, marked: Sequence[Span] = ()) -> Markup:
    """Return HTML. The spans in `marked` are highlighted."""
    parts: list[str] = []
    end = 0
    for start, stop in sorted(marked):
        start, stop = max(start, end), min(stop, len(text))
        if start < stop:
            parts += [_show_part(text, end, start), Markup("<mark>"), _show_part(text, start, stop), Markup("</mark>")]
            end = stop
    return Markup("").join([*parts, _show_part(text, end, len(text))])


def show_plain(text: str) -> str:
    """Return a text for an attribute or a title, where no element may stand."""
    return "".join(f"[{_code(character)}]" if _is_hidden(text, at) else character for at, character in enumerate(text))


def find_words(text: str, words: str) -> list[Span]:
    """Return the spans of a text that a person searched for, in any case."""
    low, wanted = text.lower(), words.lower()
    if not wanted or len(low) != len(text):  # a letter that changes its length would shift the spans
        return []
    found: list[Span] = []
    at = low.find(wanted)
    while at >= 0 and len(found) < 100:
        found.append((at, at + len(wanted)))
        at = low.find(wanted, at + len(wanted))
    return found


def _show_part(text: str, start: int, end: int) -> Markup:
    return Markup("").join(_show_pieces(text, start, end))


def _show_pieces(text: str, start: int, end: int) -> Iterable[Markup]:
    clean = start
    for found in _UNUSUAL.finditer(text, start, end):
        at = found.start()
        if _is_hidden(text, at):
            yield escape(text[clean:at])
            name = unicodedata.name(text[at], "control character").lower()
            yield Markup('<span class="hidden-char" title="{}: {}">{}</span>').format(
                _code(text[at]), name, _code(text[at])
            )
            clean = at + 1
    yield escape(text[clean:end])


def _is_hidden(text: str, at: int) -> bool:
    character = text[at]
    if not _UNUSUAL.fullmatch(character):
        return False
    if character in _EMOJI_SELECTORS:
        return not (at and (text[at - 1] > "\x7f" or text[at - 1] in "#*0123456789"))
    if character in _JOINERS:
        return not (0 < at < len(text) - 1 and text[at - 1] > "\xff" and text[at + 1] > "\xff")
    selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return selector or character in _BLANKS or unicodedata.category(character) in _HIDDEN_CATEGORIES


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
