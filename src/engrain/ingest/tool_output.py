"""Shorten a long tool output to an excerpt that fits its form: JSON, table, log, prose or lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any

from engrain.core.text.passages import find_sentence_spans
from engrain.core.text.summarize import DigestPart, write_digest

MAX_SHOWN_CHARACTERS = 2_000  # a shorter output is shown whole; an excerpt is never longer
MAX_RAW_BYTES = 1_000_000  # of UTF-8
RAW_LIFETIME = timedelta(hours=24)
_MAX_NAME = 80

# A megabyte must not be read word by word: everything but a search works on this many characters.
_MAX_PARSED_JSON = 200_000
_HEAD_CHARACTERS = 8_192
_MAX_SEARCHED_BYTES = 1_000_000
_PROSE_HEAD, _PROSE_PART = 3_000, 1_000
_MAX_LINE = 200
_ROWS = 5
_MAX_KEYS = 12
_MAX_DEPTH = 3
_MAX_SAMPLES = 100

_FAILURE_WORDS = (b"error", b"exception", b"fail", b"fatal", b"panic")
_LEADING_KEYS = ("error", "errors", "message", "detail", "status", "code", "result")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_QUOTED = re.compile(r'"[^"]*"')
_LOG_LINE = re.compile(
    r"\W{0,3}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:)|.{0,60}\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)"
)
_DIGITS = re.compile(r"\d+")
_SENTENCE_ENDS = frozenset(".!?…。！？")
_MIN_TYPICAL_SENTENCE = 15

# The name of the text's form, and the lines to show.
Excerpt = tuple[str, list[str]]


def shorten_output(text: str, tool: str | None = None, failed: bool = False) -> tuple[str, str | None]:
    """Return the text to show, and the whole output if that is longer.

    The excerpt keeps the output's own words, and always names the length of the whole:

    - of JSON the shape and the leading values, of a table the head and the first rows;
    - of a log the errors and the last lines, of prose the main sentences.

    The whole output is cut at MAX_RAW_BYTES, with a mark. Characters that no store can keep are replaced: a NUL by
    U+FFFD, half a surrogate pair by a question mark.
    """
    text = _make_storable(text)
    if len(text) <= MAX_SHOWN_CHARACTERS:
        return text, None
    name = " ".join((tool or "").split())[:_MAX_NAME]
    front = f"{name}: " if name else ""
    # Again, because the tool's name and unescaped JSON may bring in such characters.
    return _make_storable(front + build_excerpt(text, MAX_SHOWN_CHARACTERS - len(front), failed)), _cap_raw(text)


def build_excerpt(text: str, budget: int, failed: bool = False) -> str:
    """Build an excerpt of at most `budget` characters. Its first line names the form and the length of the whole."""
    left = budget - _MAX_LINE
    found = _excerpt_json(text, left, failed)
    if not found and not failed:
        found = _excerpt_table(text) or _excerpt_prose(text, left)
    form, body = found or _excerpt_lines(text, left, failed or _is_log(text))
    return "\n".join(_take_lines([f"{_shorten(form)} ({len(text):,} characters in all)", *body], budget))


def _make_storable(text: str) -> str:
    text = text.replace("\x00", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _cap_raw(text: str) -> str:
    if len(text) * 4 <= MAX_RAW_BYTES or (text.isascii() and len(text) <= MAX_RAW_BYTES):
        return text
    whole = text[:MAX_RAW_BYTES].encode()
    if len(text) <= MAX_RAW_BYTES and len(whole) <= MAX_RAW_BYTES:
        return text
    mark = f"\n[cut here: {len(text):,} characters in all]"
    return whole[: MAX_RAW_BYTES - len(mark)].decode(errors="ignore") + mark


def _excerpt_json(text: str, budget: int, failed: bool) -> Excerpt | None:
    if not text[:_MAX_LINE].lstrip().startswith(("{", "[")):
        return None
    if len(text) <= _MAX_PARSED_JSON and (value := _parse_json(text)) is not None:
        rows = list(_list_leading_values(value))
        left = budget - sum(map(len, rows)) - len(rows)
        return f"JSON, {_describe_shape(value)}", rows + _excerpt_main_text(value, len(text) // 2, left, failed)
    lines = list(_iterate_first_lines(text, _ROWS))
    records = [_parse_json(line) for line in lines[:2]]
    if len(records) == 2 and all(isinstance(one, dict) for one in records):
        return f"{_count_lines(text):,} lines of JSON, the first {_describe_shape(records[0])}", lines
    value = _parse_json(_close_json(text[:_HEAD_CHARACTERS]))
    if value is None:
        return None
    shape = f"JSON, in its first {_HEAD_CHARACTERS:,} characters {_describe_shape(value)}"
    return shape, list(_list_leading_values(value))


def _excerpt_main_text(value: Any, most: int, budget: int, failed: bool) -> list[str]:
    """Excerpt the one string that makes up most of an object, as in {"stdout": "…", "exit_code": 0}."""
    inner = value if isinstance(value, dict) else {}
    text = next((one for one in islice(inner.values(), 1_000) if isinstance(one, str) and len(one) > most), None)
    return [] if text is None or budget < 2 * _MAX_LINE else build_excerpt(text, budget, failed).split("\n")


def _parse_json(text: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except ValueError:  # a lone surrogate too
        return None


def _close_json(head: str) -> str:
    """Complete the beginning of a JSON text: cut it at its last comma and close every open bracket."""
    open_now: list[str] = []
    cut, closers = 0, ""
    for token in _TOKEN.finditer(head):
        sign = token[0]
        if sign == '"':  # an unterminated string
            break
        if sign in "{[":
            open_now.append("}" if sign == "{" else "]")
        elif sign in "}]" and open_now:
            open_now.pop()
        elif sign == ",":
            cut, closers = token.start(), "".join(reversed(open_now))
    return head[:cut] + closers


def _describe_shape(value: Any) -> str:
    if isinstance(value, dict):
        more = f" and {len(value) - _MAX_KEYS} more" if len(value) > _MAX_KEYS else ""
        keys = ", ".join(_shorten(key, 40) for key in islice(value, _MAX_KEYS))
        return f"an object with {keys}{more}" if value else "{}"
    if isinstance(value, list):
        kinds = {type(one) for one in value[:_MAX_SAMPLES]}
        each = f", each {_describe_shape(value[0])}" if len(kinds) == 1 and kinds != {list} else ""
        return f"a list of {len(value):,}{each}"
    return {str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")


def _list_leading_values(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from map(_dump_short, value[: 4 * _ROWS])
        return
    if not isinstance(value, dict):
        yield _dump_short(value)
        return
    for key in sorted(islice(value, 1_000), key=lambda key: key.lower() not in _LEADING_KEYS):
        inner = value[key]
        large = isinstance(inner, (dict, list)) and len(inner) > 1
        yield f"{_shorten(key, 40)}: {_describe_shape(inner) if large else _dump_short(inner)}"
    # A single list, such as search results, is the content of the answer.
    lists = [inner for inner in value.values() if isinstance(inner, list) and len(inner) > 1]
    if len(lists) == 1:
        yield from _list_leading_values(lists[0])


def _dump_short(value: Any) -> str:
    """Dump a value as JSON on one line. A large value is shrunk first, so that no more is written than shown."""
    import orjson

    return _shorten(orjson.dumps(_shrink(value)).decode())


def _shrink(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return _shorten(value)
    if depth > _MAX_DEPTH and isinstance(value, (list, dict)):
        return "…"
    if isinstance(value, list):
        return [_shrink(one, depth + 1) for one in value[:_ROWS]]
    if isinstance(value, dict):
        return {_shorten(key, 40): _shrink(one, depth + 1) for key, one in islice(value.items(), _MAX_KEYS)}
    return value


def _excerpt_table(text: str) -> Excerpt | None:
    lines = list(_iterate_first_lines(text, _ROWS + 1))
    plain = [_QUOTED.sub("", line) for line in lines]
    for sign in "\t|;,":
        counts = {line.count(sign) for line in plain}
        if len(plain) > 3 and len(counts) == 1 and counts.pop() > 0:
            return f"A table of {_count_lines(text) - 1:,} rows", lines
    return None


def _excerpt_prose(text: str, budget: int) -> Excerpt | None:
    spans = _sample_sentences(text)
    if len(spans) < 3 or _is_log(text):
        return None
    typical = sorted(end - start for start, end in spans)[len(spans) // 2]
    ended = sum(text[end - 1] in _SENTENCE_ENDS for _, end in spans)
    if typical < _MIN_TYPICAL_SENTENCE or ended * 4 < len(spans):  # lines may be broken inside sentences
        return None
    sample = "\n".join(text[start:end] for start, end in spans)
    return "Text, its telling sentences", write_digest([DigestPart(sample)], budget, len).split("\n")


def _sample_sentences(text: str) -> list[tuple[int, int]]:
    """Return sentences of the beginning, the middle and the end, without the ones cut at the edges."""
    half, size = len(text) // 2, len(text)
    if size <= _PROSE_HEAD + 2 * _PROSE_PART:
        return find_sentence_spans(text, 0, size)
    head = find_sentence_spans(text, 0, _PROSE_HEAD)[:-1]
    middle = find_sentence_spans(text, half, half + _PROSE_PART)[1:-1]
    return [*head, *middle, *find_sentence_spans(text, size - _PROSE_PART, size)[1:]]


def _is_log(text: str) -> bool:
    return any(map(_LOG_LINE.match, _iterate_first_lines(text, _ROWS)))


def _excerpt_lines(text: str, budget: int, log: bool) -> Excerpt:
    """Show the beginning, lines about failures, and the end. A log with failures is shown without its beginning."""
    last = [_shorten(line) for line in text[-_HEAD_CHARACTERS:].splitlines() if line.strip()][-2 * _ROWS :]
    first = _take_lines(_iterate_first_lines(text, 2 if log else 2 * _ROWS), budget // 3)
    # Every text on programming has the word "error". Followed by a colon it reports one.
    found = _find_failures(text, _FAILURE_WORDS if log else [sign + b":" for sign in _FAILURE_WORDS])
    found = _take_lines([line for line in found if line not in first and line not in last], budget // 3)
    front = [*([] if log and found else first), *(["…"] if found and not log else []), *found, "…"]
    rest = _take_lines(reversed(last), budget - sum(map(len, front)) - len(front))
    count = _count_lines(text)
    return f"{count:,} line{'s' * (count != 1)}{', with failures' * bool(found)}", [*front, *reversed(rest)]


def _find_failures(text: str, signs: Sequence[bytes]) -> list[str]:
    """Return the first and last lines about a failure. Lines that differ only in numbers count as one."""
    # In bytes: lowering the case of a megabyte of non-ASCII characters takes longer than everything else.
    plain = text[-_MAX_SEARCHED_BYTES:].encode(errors="replace")[-_MAX_SEARCHED_BYTES:]
    lower = plain.lower()
    lines: dict[str, str] = {}
    for place in sorted({_find_line_start(lower, place) for sign in signs for place in _find_places(lower, sign)}):
        line = _shorten(plain[place : place + 2 * _MAX_LINE].split(b"\n", 1)[0].decode(errors="ignore").strip())
        lines.setdefault(_DIGITS.sub("#", line), line)
    distinct = list(lines.values())
    return distinct if len(distinct) <= 2 * _ROWS else [*distinct[:_ROWS], *distinct[-_ROWS:]]


def _find_places(text: bytes, sign: bytes) -> Iterator[int]:
    """Yield the first place of a sign in each of the first lines that have it, then its last place."""
    place = text.find(sign)
    for _ in range(_MAX_SAMPLES):
        if place < 0:
            return
        yield place
        end = text.find(b"\n", place)
        place = text.find(sign, end) if end >= 0 else -1
    yield text.rfind(sign)


def _find_line_start(text: bytes, place: int) -> int:
    near = max(0, place - _MAX_LINE)
    return max(text.rfind(b"\n", near, place) + 1, near)


def _iterate_first_lines(text: str, count: int) -> Iterator[str]:
    lines = text[:_HEAD_CHARACTERS].split("\n")
    return islice((line.rstrip("\r") for line in lines if line.strip()), count)


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _shorten(text: str, most: int = _MAX_LINE) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _take_lines(lines: Iterable[str], budget: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        short = _shorten(line, 2 * _MAX_LINE)
        if len(short) + 1 > budget:
            break
        kept.append(short)
        budget -= len(short) + 1
    return kept
