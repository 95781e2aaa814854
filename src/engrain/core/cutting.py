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


def moved(at: int | None, spans: Sequence[Span], *, left: bool) -> int | None:
    """Where an edge of a cite is after the cut; one inside a hole moves out, so that the cite takes in the mark."""
    if at is None:
        return None
    shift = 0
    for start, end in joined(spans):
        if at <= start:
            break
        if at < end or (not left and at == end):
            return start + shift + (0 if left else len(FORGOTTEN))
        shift += len(FORGOTTEN) - (end - start)
    return at + shift
