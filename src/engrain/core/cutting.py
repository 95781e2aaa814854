"""Cut spans out of a text, and move what points into it."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.items import FORGOTTEN

Span = tuple[int, int]


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


def overlaps(start: int | None, end: int | None, spans: Sequence[Span]) -> bool:
    """Whether a cite with these edges has a character inside a span; one with none, or 0:0, is of the whole text."""
    if (start, end) == (0, 0):
        return bool(spans)
    return any((start or 0) < right and (end is None or left < end) for left, right in spans)


def moved(at: int | None, spans: Sequence[Span]) -> int | None:
    """Where an edge of a cite is after the cut; none is inside a hole, since what overlaps one is gone."""
    if at is None:
        return None
    return at + sum(len(FORGOTTEN) - (end - start) for start, end in joined(spans) if end <= at)
