"""Write remembered texts as lines of a Markdown page, and read every one of them back as it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

INDENT = "  "

_WHITE = " \t"
# What would break a line, turn the reading direction or be lost at a line's end is written as &#xHEX;.
_HIDDEN = (*range(0xA), *range(0xB, 0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))
_CODES = frozenset((*_HIDDEN, *range(0x2066, 0x206A), 0xFEFF)) - {0x9}
_CLASS = re.escape("".join(map(chr, sorted(_CODES))))
_MARK = r"<br>|&#x[0-9A-F]{1,4};"
_WRITTEN = re.compile(rf"(\\*)({_MARK}|[\n{_CLASS}]|\A[ \t]|[ \t]\Z)")
_WRITTEN_NAME = re.compile(rf"(\\*)({_MARK}|[\n*{_CLASS}]|\A[ \t]|[ \t:]\Z)")
_READ = re.compile(rf"(\\*)({_MARK})")
_READABLE = _CODES | {0x9, 0x20, 0x2A, 0x3A}

_BULLET = re.compile(r"(?P<mark> {0,3}(?:[-*+]|\d{1,3}[.)]))[ \t]+(?P<body>[^ \t].*)")
_RULE = re.compile(r"[-*_ \t]+")
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})(?P<title>(?:[ \t].*)?)")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")
_NOT_PROSE = re.compile(r" {0,3}(?:[>|#<]|`{3}|~{3})")
# A name with a dot is a slot as it stands; any other says so, because **Note**: is how people begin a line.
_SLOT = re.compile(r"\*\*(?P<name>[^*]+?)(?:\*\*:|:\*\*|\*\*(?P<slot> \(slot\)):)(?:[ \t]+(?P<text>[^ \t].*))?")
_DOTTED = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_TIME = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)[ \t]+(?P<text>[^ \t].*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one line of a page says: a text, the slot that it holds, and in a daily log the time of day, "09:30"."""

    text: str
    slot: str | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a page as they stand: one entry, or what is not memory, such as headings, prose and empty lines.

    `mark` is the bullet that the entry has, with what it is indented by; `title` and `level` are a heading's; `line` is
    the number of the first.
    """

    raw: str
    line: int
    entry: Entry | None = None
    mark: str = "-"
    title: str | None = None
    level: int = 0

    @property
    def prose(self) -> bool:
        """A line of text that is neither an entry nor a part of the layout."""
        text = self.raw.strip().removeprefix("\ufeff")
        return bool(text) and self.entry is None and self.title is None and text[0] not in "<>|`~-*+_="


def hash_entry(entry: Entry) -> str:
    """The same for entries that say the same, however the line is written."""
    what = "\x1f".join((entry.at or "", entry.slot or "", entry.text))
    return blake2b(what.encode(), digest_size=12).hexdigest()


def write_entry(entry: Entry, *, log: bool = False, mark: str = "-", end: str = "\n") -> str:
    """The entry as a bullet. A text of several lines goes on below, indented, where that can be read back."""
    first, *more = _segments(entry.text)
    head = _escaped(first)
    if entry.at is not None:
        head = f"{entry.at} {head}"
    elif entry.slot is not None:
        told = "" if _DOTTED.fullmatch(entry.slot) else " (slot)"
        head = f"**{_escaped(entry.slot, _WRITTEN_NAME)}**{told}: {head}"
    elif _says_more(head.lstrip("\\"), log):
        head = "\\" + head
    indent = mark[: _indent(mark)] + INDENT
    below = [f"{indent}{_continued(one)}" if one else "" for one in more]
    return "".join(line + end for line in (f"{mark} {head}", *below))


def read_page(text: str, *, log: bool = False) -> list[Block]:
    """Every line of the page in one block, in order: joined, they are the page."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    bare = [line.rstrip("\r\n \t") for line in lines]
    if bare:
        bare[0] = bare[0].removeprefix("\ufeff")
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        end = _end(bare, at)
        blocks.append(_block(bare[at:end], "".join(lines[at:end]), at + 1, log))
        at = end
    return blocks


def detect_line_end(text: str) -> str:
    """How the lines of a page end: as its first one does."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


# Writing


def _segments(text: str) -> list[str]:
    """The lines of a text that can stand on lines of their own; else the text alone, its line breaks as <br>."""
    first, *more = text.split("\n")
    told = [one for one in more if one]
    plain = all(one.strip(_WHITE) for one in (first, *told)) and bool(more and more[-1])
    return [first, *more] if plain and told[0][0] not in _WHITE else [text]


def _escaped(text: str, what: re.Pattern[str] = _WRITTEN) -> str:
    return what.sub(_marked, text)


def _continued(text: str) -> str:
    """As _escaped, with the white space that a line begins with left as it is: the indent shows where it starts."""
    return text[: _indent(text)] + _escaped(text.lstrip(_WHITE))


def _marked(match: re.Match[str]) -> str:
    slashes, what = match.groups()
    if len(what) > 1:
        return f"{slashes * 2}\\{what}" if what == "<br>" or _code(what) in _READABLE else match[0]
    return slashes * 2 + ("<br>" if what == "\n" else f"&#x{ord(what):X};")


def _says_more(head: str, log: bool) -> bool:
    """Whether a text would be read as more than a text: a slot, a time of day, a rule across the page."""
    return bool(_RULE.fullmatch(head)) or (_TIME.fullmatch(head) is not None if log else _slot(head) is not None)


# Reading


def _unescaped(text: str) -> str:
    return _READ.sub(_unmarked, text)


def _unmarked(match: re.Match[str]) -> str:
    slashes, mark = match.groups()
    if mark != "<br>" and _code(mark) not in _READABLE:
        return match[0]
    half = slashes[: len(slashes) // 2]
    return half + (mark if len(slashes) % 2 else "\n" if mark == "<br>" else chr(_code(mark)))


def _code(mark: str) -> int:
    return int(mark[3:-1], 16)


def _end(lines: Sequence[str], at: int) -> int:
    """Where the block that begins here ends."""
    line = lines[at]
    if at == 0 and line == "---" and "---" in lines[1:]:
        return lines.index("---", 1) + 1
    if fence := _FENCE.match(line):
        return _after(lines, at, re.compile(rf" {{0,3}}{fence['fence']}{re.escape(fence['fence'][0])}*"))
    if line.lstrip(_WHITE).startswith("<!--"):
        return at + 1 if "-->" in line else _after(lines, at, re.compile(r".*-->.*"))
    bullet = _bullet(line)
    return _entry_end(lines, at, _indent(bullet["mark"])) if bullet else at + 1


def _after(lines: Sequence[str], at: int, ends: re.Pattern[str]) -> int:
    """What is never closed, as in a page that was cut off, hides nothing below it."""
    return next((n + 1 for n in range(at + 1, len(lines)) if ends.fullmatch(lines[n])), at + 1)


def _entry_end(lines: Sequence[str], start: int, indent: int) -> int:
    """With the indented lines below the bullet, and a line of prose that runs on without an indent."""
    end = at = start + 1
    while at < len(lines):
        line = lines[at]
        deep = 4 if line.startswith("\t") else _indent(line)
        below = deep >= indent + 2 or (deep > indent and not _bullet(line))
        runs_on = at == end and not _bullet(line) and not _NOT_PROSE.match(line) and not _RULE.fullmatch(line)
        if line and not (below or runs_on):
            break
        at += 1
        end = at if line else end
    return end


def _block(lines: Sequence[str], raw: str, number: int, log: bool) -> Block:
    bullet, heading = _bullet(lines[0]), _HEADING.fullmatch(lines[0])
    if heading:
        return Block(raw, number, title=heading["title"].strip(" \t#"), level=len(heading["level"]))
    if not bullet:
        return Block(raw, number)
    entry = _entry(bullet["body"], [_unescaped(one) for one in _dedented(lines[1:])], log)
    return Block(raw, number, entry if entry.text.strip() else None, bullet["mark"])


def _bullet(line: str) -> re.Match[str] | None:
    match = _BULLET.fullmatch(line)
    return match if match and not _RULE.fullmatch(line) else None


def _dedented(lines: Sequence[str]) -> list[str]:
    first = next((line for line in lines if line), "")
    indent = _indent(first)
    return [line[min(indent, _indent(line)) :] for line in lines]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(_WHITE))


def _entry(head: str, below: Sequence[str], log: bool) -> Entry:
    def whole(text: str) -> str:
        return "\n".join((_unescaped(text), *below))

    if head.startswith("\\") and _says_more(head.lstrip("\\"), log):
        return Entry(whole(head[1:]))
    if log and (time := _TIME.fullmatch(head)):
        return Entry(whole(time["text"]), at=f"{time['hour']:0>2}:{time['minute']}")
    if not log and (slot := _slot(head)):
        text = "\n".join(below) if slot["text"] is None else whole(slot["text"])
        return Entry(text, _unescaped(slot["name"]))
    return Entry(whole(head))


def _slot(head: str) -> re.Match[str] | None:
    match = _SLOT.fullmatch(head)
    return match if match and (match["slot"] or _DOTTED.fullmatch(match["name"])) else None
