"""Cut spans out of a text and shift the citations of what is left."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.model.items import FORGOTTEN

Span = tuple[int, int]


def cut_spans(text: str, spans: Sequence[Span]) -> str:
    """Put the FORGOTTEN mark in the place of each span."""
    for start, end in reversed(merge_spans(spans)):
        text = text[:start] + FORGOTTEN + text[end:]
    return text


def shift_offset(offset: int | None, spans: Sequence[Span]) -> int | None:
    """Return the offset of a citation after the cut. It lies in no span: citations that overlap one are removed."""
    if offset is None:
        return None
    return offset + sum(len(FORGOTTEN) - (end - start) for start, end in merge_spans(spans) if end <= offset)


def cites_any_span(start: int | None, end: int | None, spans: Sequence[Span]) -> bool:
    """Tell if a citation overlaps a span. A citation without offsets, or of 0:0, covers the whole text."""
    if (start, end) == (0, 0):
        return bool(spans)
    return any((start or 0) < right and (end is None or left < end) for left, right in spans)


def merge_spans(spans: Sequence[Span]) -> list[Span]:
    """Sort the spans and join those that overlap or touch."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
