"""Tell a speaker's own words from what recall rendered, which must never be taken in again."""

from __future__ import annotations

import re

from engrain.core.cutting import Span, joined
from engrain.core.recalled import IN_SHORT, RECENT, SESSION

# Opens the summary of a conversation in a prompt; the lines of it are quoted with ">".
EARLIER = "[Context from earlier conversation]"

_QUOTED = r'"(?>(?:[^"\\]|\\.)*)"'
# - slot: "words" (2026-11-15 …: the head of every line that recall makes, wherever it stands.
_ITEM = re.compile(rf'- (?:(?:[^"\\\n]|\\.){{1,400}}: )?{_QUOTED}[\s>]+(?=\(\d{{4}}-\d\d-\d\d\b)', re.DOTALL)
_PARTICULARS = re.compile(rf'\((?>(?:[^()"]|{_QUOTED}|\([^()"\n]{{0,200}}\))*)\)', re.DOTALL)
_MARGIN = r"^[ \t>|*]*"
_HEADING = re.compile(rf"{_MARGIN}## (?:{SESSION}|{RECENT})[ \t]*$", re.MULTILINE)
# Parts of a section that stand after an empty line.
_GOES_ON = re.compile(
    rf"{_MARGIN}(?:## |Current Task: |Current Goal: |Subgoals: |Intermediate Results|Recent Thoughts:|Earlier:|Latest)",
    re.MULTILINE,
)
_EARLIER = re.compile(rf"{_MARGIN}{re.escape(EARLIER)}[^\n]*(?:\n[ \t]*>[^\n]*)*", re.MULTILINE)
# A summary: its head, and each of its lines in quotes.
_SUMMED_UP = re.compile(rf"- {IN_SHORT} \(\d{{4}}-\d\d-\d\d\b[^\n]*\):(?:\n[ \t>|*]*{_QUOTED}[ \t]*(?=\n|$))*")
_NOT_A_LINE_END = re.compile(r"[^\n]")
_EMPTY = re.compile(r"\n(?:[ \t>|*]*\n)+")


def unrecalled(text: str) -> list[Span]:
    """The spans of a text that did not come from recall, in order; all of it where nothing did."""
    edges = [0, *(edge for span in _recalled(text) for edge in span), len(text)]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if text[start:end].strip()]


def own_words(text: str) -> str:
    """The text with spaces in place of what came from recall, so that every other word stays at its place."""
    shown, at = "", 0
    for start, end in _recalled(text):
        shown += text[at:start] + _NOT_A_LINE_END.sub(" ", text[start:end])
        at = end
    return shown + text[at:]


def _recalled(text: str) -> list[Span]:
    found: list[Span] = []
    if "(" in text:
        found += [(item.start(), _item_end(text, item.start(), item.end())) for item in _ITEM.finditer(text)]
    if f"- {IN_SHORT} (" in text:
        found += [match.span() for match in _SUMMED_UP.finditer(text)]
    if EARLIER in text:
        found += [match.span() for match in _EARLIER.finditer(text)]
    at = 0
    while "## " in text and (heading := _HEADING.search(text, at)):
        at = _section_end(text, heading.end())
        found.append((heading.start(), at))
    return joined(found)


def _item_end(text: str, start: int, at: int) -> int:
    """The end of the line, where nothing can follow; inside a sentence, where the bracket is closed."""
    line_end = len(text) if (found := text.find("\n", at)) < 0 else found
    begins = not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t>|*")
    if begins and text[at:line_end].rstrip().endswith(")"):
        return line_end
    particulars = _PARTICULARS.match(text, at)
    return particulars.end() if particulars else line_end


def _section_end(text: str, at: int) -> int:
    """These sections have lines of any form: all of it, up to an empty line after which none of their parts begins."""
    for gap in _EMPTY.finditer(text, at):
        if not _GOES_ON.match(text, gap.end()):
            return gap.start()
    return len(text)
