"""Write remembered texts as lines of a Markdown page, and read each of them back unchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

INDENT = "  "

_WHITE = " \t"
# Characters that break a line, turn the reading direction or get lost at a line's end are written as &#xHEX;.
_CONTROL_CODES = (*range(0xA), *range(0xB, 0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))
_ESCAPED_CODES = frozenset((*_CONTROL_CODES, *range(0x2066, 0x206A), 0xFEFF)) - {0x9}
_ESCAPED_CLASS = re.escape("".join(map(chr, sorted(_ESCAPED_CODES))))
_ESCAPE = r"<br>|&#x[0-9A-F]{1,4};"
# Only the first backslash of a run may begin a match: else a run without a mark behind it is read from every place.
_SLASHES = r"(?<!\\)(\\*+)"
_TO_ESCAPE = re.compile(rf"{_SLASHES}({_ESCAPE}|[\n{_ESCAPED_CLASS}]|\A[ \t]|[ \t]\Z)")
_TO_ESCAPE_IN_NAME = re.compile(rf"{_SLASHES}({_ESCAPE}|[\n*{_ESCAPED_CLASS}]|\A[ \t]|[ \t:]\Z)")
_TO_UNESCAPE = re.compile(rf"{_SLASHES}({_ESCAPE})")
_READABLE_CODES = _ESCAPED_CODES | {0x9, 0x20, 0x2A, 0x3A}

_BULLET = re.compile(r"(?P<mark> {0,3}(?:[-*+]|\d{1,3}[.)]))[ \t]+(?P<body>[^ \t].*)")
_RULE = re.compile(r"[-*_ \t]+")
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?P<title>(?:[ \t].*)?)")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")
_NOT_PROSE = re.compile(r" {0,3}(?:[>|#<]|`{3}|~{3})")
# A name with a dot is a slot. Any other name needs "(slot)", because people begin lines with **Note**:.
_SLOT = re.compile(r"\*\*(?P<name>[^*]+?)(?:\*\*:|:\*\*|\*\*(?P<slot> \(slot\)):)(?:[ \t]+(?P<text>[^ \t].*))?")
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_TIME = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)[ \t]+(?P<text>[^ \t].*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered line: a text, its slot, and in a daily log its time of day, such as "09:30"."""

    text: str
    slot: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines of a page, unchanged: one entry, or a heading, prose or an empty line.

    `mark` is the bullet of the entry with its indent. `title` and `level` belong to a heading.
    `line` is the number of the first line.
    """

    raw: str
    line: int
    entry: Entry | None = None
    mark: str = "-"
    title: str | None = None
    level: int = 0

    @property
    def prose(self) -> bool:
        """Tell text that is neither an entry nor part of the layout."""
        text = self.raw.strip().removeprefix("\ufeff")
        return bool(text) and self.entry is None and self.title is None and text[0] not in "<>|`~-*+_="


def hash_entry(entry: Entry) -> str:
    """Return a key that is equal for entries with the same content, however the line is written."""
    what = "\x1f".join((entry.at or "", entry.slot or "", entry.text))
    return blake2b(what.encode(), digest_size=12).hexdigest()


def write_entry(entry: Entry, *, log: bool = False, mark: str = "-", end: str = "\n") -> str:
    """Write the entry as a bullet. Further lines follow indented, if they can be read back."""
    first, *more = _split_lines(entry.text)
    head = _escape(first)
    if entry.at is not None:
        head = f"{entry.at} {head}"
    elif entry.slot is not None:
        suffix = "" if _DOTTED.fullmatch(entry.slot) else " (slot)"
        head = f"**{_escape(entry.slot, _TO_ESCAPE_IN_NAME)}**{suffix}: {head}"
    elif _has_special_meaning(head.lstrip("\\"), log):
        head = "\\" + head
    indent = mark[: _count_indent(mark)] + INDENT
    below = [f"{indent}{_escape_continuation(line)}" if line else "" for line in more]
    return "".join(line + end for line in (f"{mark} {head}", *below))


def read_page(text: str, *, log: bool = False) -> list[Block]:
    """Split the page into blocks, in order. Joined, they are the page again."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    bare = [line.rstrip("\r\n \t") for line in lines]
    if bare:
        bare[0] = bare[0].removeprefix("\ufeff")
    blocks: list[Block] = []
    unclosed: set[str] = set()
    at = 0
    while at < len(lines):
        end = _find_block_end(bare, at, unclosed)
        blocks.append(_make_block(bare[at:end], "".join(lines[at:end]), at + 1, log))
        at = end
    return blocks


def detect_line_end(text: str) -> str:
    """Return the line end of the first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def _split_lines(text: str) -> list[str]:
    """Split a text into lines if each can be read back; else return it whole, its line breaks to be written as <br>."""
    first, *more = text.split("\n")
    filled = [line for line in more if line]
    plain = all(line.strip(_WHITE) for line in (first, *filled)) and bool(more and more[-1])
    return [first, *more] if plain and filled[0][0] not in _WHITE else [text]


def _escape(text: str, what: re.Pattern[str] = _TO_ESCAPE) -> str:
    return what.sub(_escape_match, text)


def _escape_continuation(text: str) -> str:
    """Escape a further line but keep its leading white space: the indent shows where it starts."""
    return text[: _count_indent(text)] + _escape(text.lstrip(_WHITE))


def _escape_match(match: re.Match[str]) -> str:
    slashes, what = match.groups()
    if len(what) > 1:
        return f"{slashes * 2}\\{what}" if what == "<br>" or _decode_escape(what) in _READABLE_CODES else match[0]
    return slashes * 2 + ("<br>" if what == "\n" else f"&#x{ord(what):X};")


def _has_special_meaning(head: str, log: bool) -> bool:
    """Tell if a text would be read as a slot, a time of day or a horizontal rule."""
    return bool(_RULE.fullmatch(head)) or (_TIME.fullmatch(head) is not None if log else _match_slot(head) is not None)


def _unescape(text: str) -> str:
    return _TO_UNESCAPE.sub(_unescape_match, text)


def _unescape_match(match: re.Match[str]) -> str:
    slashes, mark = match.groups()
    if mark != "<br>" and _decode_escape(mark) not in _READABLE_CODES:
        return match[0]
    half = slashes[: len(slashes) // 2]
    return half + (mark if len(slashes) % 2 else "\n" if mark == "<br>" else chr(_decode_escape(mark)))


def _decode_escape(mark: str) -> int:
    return int(mark[3:-1], 16)


def _find_block_end(lines: Sequence[str], at: int, unclosed: set[str]) -> int:
    """Return the line after the block that begins here. `unclosed` are the closing lines known to be missing."""
    line = lines[at]
    if at == 0 and line == "---" and "---" in lines[1:]:
        return lines.index("---", 1) + 1
    if fence := _FENCE.match(line):
        return _find_closing_line(lines, at, rf" {{0,3}}{fence['fence']}{fence['fence'][0]}*", unclosed)
    if line.lstrip(_WHITE).startswith("<!--"):
        return at + 1 if "-->" in line else _find_closing_line(lines, at, ".*?-->.*", unclosed)
    bullet = _match_bullet(line)
    return _find_entry_end(lines, at, _count_indent(bullet["mark"])) if bullet else at + 1


def _find_closing_line(lines: Sequence[str], at: int, closing: str, unclosed: set[str]) -> int:
    # A fence or comment that is never closed, as in a truncated page, hides nothing below it.
    if closing not in unclosed:
        ends = re.compile(closing)
        for number in range(at + 1, len(lines)):
            if ends.fullmatch(lines[number]):
                return number + 1
        unclosed.add(closing)
    return at + 1


def _find_entry_end(lines: Sequence[str], start: int, indent: int) -> int:
    """Include the indented lines below the bullet, and a line of prose that continues without an indent."""
    end = at = start + 1
    while at < len(lines):
        line = lines[at]
        deep = 4 if line.startswith("\t") else _count_indent(line)
        below = deep >= indent + 2 or (deep > indent and not _match_bullet(line))
        runs_on = at == end and not _match_bullet(line) and not _NOT_PROSE.match(line) and not _RULE.fullmatch(line)
        if line and not (below or runs_on):
            break
        at += 1
        end = at if line else end
    return end


def _make_block(lines: Sequence[str], raw: str, number: int, log: bool) -> Block:
    bullet, heading = _match_bullet(lines[0]), _HEADING.fullmatch(lines[0])
    if heading:
        return Block(raw, number, title=heading["title"].strip(" \t#"), level=len(heading["level"]))
    if not bullet:
        return Block(raw, number)
    entry = _make_entry(bullet["body"], [_unescape(line) for line in _dedent(lines[1:])], log)
    return Block(raw, number, entry if entry.text.strip() else None, bullet["mark"])


def _match_bullet(line: str) -> re.Match[str] | None:
    match = _BULLET.fullmatch(line)
    return match if match and not _RULE.fullmatch(line) else None


def _dedent(lines: Sequence[str]) -> list[str]:
    first = next((line for line in lines if line), "")
    indent = _count_indent(first)
    return [line[min(indent, _count_indent(line)) :] for line in lines]


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(_WHITE))


def _make_entry(head: str, below: Sequence[str], log: bool) -> Entry:
    def whole(text: str) -> str:
        return "\n".join((_unescape(text), *below))

    if head.startswith("\\") and _has_special_meaning(head.lstrip("\\"), log):
        return Entry(whole(head[1:]))
    if log and (time := _TIME.fullmatch(head)):
        return Entry(whole(time["text"]), at=f"{time['hour']:0>2}:{time['minute']}")
    if not log and (slot := _match_slot(head)):
        text = "\n".join(below) if slot["text"] is None else whole(slot["text"])
        return Entry(text, _unescape(slot["name"]))
    return Entry(whole(head))


def _match_slot(head: str) -> re.Match[str] | None:
    match = _SLOT.fullmatch(head)
    return match if match and (match["slot"] or _DOTTED.fullmatch(match["name"])) else None
