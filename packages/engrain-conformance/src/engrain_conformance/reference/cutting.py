"""The cites of an item whose text was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.items import Citation, Source
from engrain.core.rules.removal import shift_offset
from engrain.core.text.passages import Span


def span(cite: Citation, text: str) -> Span:
    """The part of the text that is cited; all of it when the cite names none."""
    return cite.start or 0, len(text) if cite.end is None else cite.end


def moved(source: Source, item: str, spans: Sequence[Span]) -> Source:
    """The source with its cites of `item` moved to where their text is after the cut."""

    def after(cite: Citation) -> Citation:
        return Citation(item, shift_offset(cite.start, spans), shift_offset(cite.end, spans))

    return replace(source, cites=tuple(after(cite) if cite.item == item else cite for cite in source.cites))
