"""Show stored text safely: escaped, and with every invisible character made visible."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence

from markupsafe import Markup, escape

from engrain.core.text.invisible import find_invisible

Span = tuple[int, int]


def show_text(text: str, marked: Sequence[Span] = ()) -> Markup:
    """Return HTML. The spans in `marked` are highlighted."""
    hidden = find_invisible(text)
    parts: list[str] = []
    end = 0
    for start, stop in sorted(marked):
        start, stop = max(start, end), min(stop, len(text))
        if start < stop:
            parts += _show_pieces(text, (end, start), hidden)
            parts += [Markup("<mark>"), *_show_pieces(text, (start, stop), hidden), Markup("</mark>")]
            end = stop
    return Markup("").join([*parts, *_show_pieces(text, (end, len(text)), hidden)])


def show_plain(text: str) -> str:
    """Return a text for an attribute or a title, where no element may stand."""
    hidden = frozenset(find_invisible(text))
    return "".join(f"[{_code(character)}]" if at in hidden else character for at, character in enumerate(text))


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


def _show_pieces(text: str, span: Span, hidden: Collection[int]) -> Iterable[Markup]:
    clean, end = span
    for at in hidden:
        if clean <= at < end:
            yield escape(text[clean:at])
            name = unicodedata.name(text[at], "control character").lower()
            yield Markup('<span class="hidden-char" title="{}: {}">{}</span>').format(
                _code(text[at]), name, _code(text[at])
            )
            clean = at + 1
    yield escape(text[clean:end])


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
