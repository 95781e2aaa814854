"""Render hits as the text block for the prompt: a line for each hit, under its heading, with all words quoted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from engrain.core.model.items import TRUST
from engrain.core.text.invisible import escape_invisible
from engrain.core.text.relative_dates import add_absolute_dates

if TYPE_CHECKING:
    from engrain.core.model.recall import Hit

# What a prompt opens with, in this order. Wishes are the user's own words, and the only part that is no mere data.
WISHES_HEADING, PROFILE_HEADING = "What the user always wants", "About the user"
SESSION_HEADING, RECENT_HEADING = "Current session", "Recent context"
FACTS, KNOWLEDGE, HOW_TO, OTHERS = HEADINGS = "Facts", "Relevant knowledge", "How to", "Said by others"

SUMMARY_LABEL = "in short"  # opens the lines of a summary
EARLIER_MARK = "(earlier) "  # opens the line of a statement after which something newer was said
_NAME_LIMIT = 80
_ENDS = " .!\n"
# Stored text must not be able to end its quotes or start a line of its own.
_ESCAPES = {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_PLAIN_NAME = re.compile(r"[\w.@/:+#=-]+")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the prompt block, and its lines."""

    title: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"## {self.title}", *self.lines))


def group_hits(hits: Iterable[Hit]) -> tuple[Section, ...]:
    """Group hits under their headings, each in the given order. A hit that the context tells is not repeated."""
    lines: dict[str, list[str]] = {title: [] for title in HEADINGS}
    for hit in (one for one in hits if not one.told):
        lines[choose_heading(hit)].append(render_hit(hit))
    return tuple(Section(title, tuple(quoted)) for title, quoted in lines.items() if quoted)


def choose_heading(hit: Hit) -> str:
    # A summary names the speaker of each line itself.
    if hit.quoting or (hit.item.trust < TRUST["agent"] and hit.item.kind != "summary"):
        return OTHERS
    if hit.item.kind == "procedure":
        return HOW_TO
    return FACTS if hit.item.slot and hit.item.kind == "fact" else KNOWLEDGE


def render_block(context: Iterable[Section], hits: Iterable[Hit]) -> str:
    return "\n\n".join(map(str, (*context, *group_hits(hits))))


def render_hit(hit: Hit) -> str:
    """Write the line of a hit: its slot, the quoted text, and in brackets date, speaker and source."""
    details = "; ".join(_list_details(hit))
    if hit.item.kind == "summary":
        return "\n".join((f"- {SUMMARY_LABEL} ({details}):", *quote_lines(hit.text)))
    slot = f"{quote_name(hit.item.slot)}: " if hit.item.slot and hit.item.kind == "fact" else ""
    mark = EARLIER_MARK if hit.earlier and not hit.outlived else ""
    return f'- {mark}{slot}"{escape_text(_date_text(hit))}" ({details})'


def _date_text(hit: Hit) -> str:
    """Return the text with the dates that "yesterday" and the like meant when it was said."""
    item = hit.item
    is_told = item.kind in ("message", "fact", "episode") and item.trust >= TRUST["agent"]
    return add_absolute_dates(hit.text, (item.occurred_at or item.recorded_at).date()) if is_told else hit.text


def escape_text(text: str) -> str:
    """Escape a text for its quotes: quotation marks, line ends and every character that is not seen."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return escape_invisible(text.translate(_ESCAPES))


def quote_lines(text: str) -> list[str]:
    """Quote each line of a text."""
    return [f'  "{escape_text(line)}"' for line in text.split("\n") if line.strip()]


def _list_details(hit: Hit) -> list[str]:
    item = hit.item
    day, since = _format_day(item.occurred_at or item.recorded_at), item.metadata.get("since")
    parts = [f"{since} to {day}" if item.kind == "summary" and isinstance(since, str) and since < day else day]
    if item.speaker or item.role:
        parts[0] += f", said by {quote_name(item.speaker) if item.speaker else f'the {item.role}'}"
    if item.source:
        parts[0] += f", from {quote_name(item.source)}"
    if item.kind == "summary" and item.slot:
        parts[0] += f", summary of session {quote_name(item.slot.removeprefix('session:'))}"
    if hit.scope is not None:
        parts.append(f"shared by {quote_name(str(hit.scope))}")
    if item.valid_to is not None:
        parts.append(f"held until {_format_day(item.valid_to)}")
    for old in hit.outlived:
        now = f', now "{escape_text(old.now)}"' if old.now else ""
        whole = old.text.strip(_ENDS) == hit.text.strip(_ENDS)  # it need not be said twice
        quoted = "" if whole else f'"{escape_text(old.text)}" '
        parts.append(f"{quoted}held until {_format_day(old.until)}{now}")
    return parts


def quote_name(name: str) -> str:
    """Return a name of one plain word as it is, and any other in quotes: it must not pass for words of the block."""
    short = escape_text(name if len(name) <= _NAME_LIMIT else name[: _NAME_LIMIT - 1] + "…")
    return short if _PLAIN_NAME.fullmatch(short) else f'"{short}"'


def _format_day(moment: datetime) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
