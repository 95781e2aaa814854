"""The page of what was changed by hand while the memory changed it too, so that neither version is lost."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from engrain.core.layout import Piece, composed
from engrain.core.mirrored import Clash
from engrain.core.pages import Entry, line_end, read_page, written

HEADER = """# Conflicts

<!-- Each line was changed by hand while the memory changed it too: the memory's version stands.
Copy what is right to where it belongs, and delete what is settled. -->

"""
DELETED = "(deleted)"

_HEAD = re.compile(r"\d{4}-\d\d-\d\d, (?P<what>\S+, (?P<id>[0-9a-z]{26}): .*)", re.DOTALL)


def unsettled(text: str) -> list[str]:
    """The id of the item of each conflict on the page."""
    entries = [block.entry for block in read_page(text) if block.entry]
    return [head["id"] for entry in entries if (head := _HEAD.fullmatch(entry.text))]


def with_conflicts(text: str, new: Sequence[Clash], gone: Container[str], day: str) -> str:
    """The page with the new ones at its end, each once, and without those whose item was forgotten."""
    blocks, end = read_page(text or (HEADER if new else "")), line_end(text)
    put: dict[int, str | None] = {}
    there: set[str] = set()
    for n, block in enumerate(blocks):
        head = _HEAD.fullmatch(block.entry.text) if block.entry else None
        if head and head["id"] in gone:
            put[n] = None
        elif head:
            there.add(head["what"])
    told = dict.fromkeys(f"{one.file}, {one.id}: {DELETED if one.text is None else one.text}" for one in new)
    pieces = [Piece("", written(Entry(f"{day}, {what}"), end=end)) for what in told if what not in there]
    page = composed(blocks, put, pieces, end)
    return "" if page.rstrip() == HEADER.rstrip() else page
