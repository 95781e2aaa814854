"""Cut spans out of a text, and move what points into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.items import FORGOTTEN, Cite, Source

Span = tuple[int, int]


def span(cite: Cite, text: str) -> Span:
    """The part of the text that is cited; all of it when the cite names none."""
    return cite.start or 0, len(text) if cite.end is None else cite.end


def joined(spans: Sequence[Span]) -> list[Span]:
    """The same characters as spans that neither overlap nor touch, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def cut(text: str, spans: Sequence[Span]) -> str:
    for start, end in reversed(joined(spans)):
        text = text[:start] + FORGOTTEN + text[end:]
    return text


def moved(source: Source, item: str, spans: Sequence[Span]) -> Source:
    """The source with its cites of `item` moved to where their text is after the cut."""
    holes = joined(spans)
    return replace(
        source,
        cites=tuple(
            cite
            if cite.item != item
            else Cite(item, _place(cite.start, holes, left=True), _place(cite.end, holes, left=False))
            for cite in source.cites
        ),
    )


def _place(at: int | None, holes: Sequence[Span], left: bool) -> int | None:
    """An edge inside a hole moves outwards, so that the cite then takes in the whole mark."""
    if at is None:
        return None
    shift = 0
    for start, end in holes:
        if at <= start:
            break
        if at < end or (not left and at == end):
            return start + shift + (0 if left else len(FORGOTTEN))
        shift += len(FORGOTTEN) - (end - start)
    return at + shift
