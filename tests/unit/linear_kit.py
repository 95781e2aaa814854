"""Functions that take text, found by a walk through the package, and adversarial texts to call them with."""

from __future__ import annotations

import gc
import importlib
import inspect
import math
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from engrain.core.errors import EngrainError
from engrain.core.tokens import estimate_tokens

MAX_GROWTH = 2.5  # of the CPU time for a text of twice the length
SUSPICIOUS = 2.2
NEARLY = 0.15  # as near to 2 is linear growth
MAX_SECONDS = 120.0
SHORT_SECONDS = 0.3
MIN_SECONDS = 0.05  # below it a fixed part, such as the reading of a paragraph, weighs too much
NOW = datetime(2026, 11, 15, tzinfo=UTC)
Call = Callable[[str], object]
_IS_TEXT = re.compile(r"^(?!.*(?:Mapping|dict)\[).*\b(?:str|bytes)\b")

# The parts that handle text. The rest passes it on to them or to a server.
PARTS = ("agent", "connect", "core", "ingest", "mcp", "mirror", "privacy", "providers", "retrieval", "server")
PARTS += ("tiers", "transfer", "ui")
# Every parameter that may be a str or bytes has one of these names: TEXT_NAMES for texts that a user, a model or a file
# may make long; SHORT_NAMES for names, ids and keys, which are checked where they come in, and for engrain's own words.
TEXT_NAMES = {
    "answer", "block", "command", "content", "error", "failed", "first", "goal", "line", "lower", "message",
    "number", "one", "other", "output", "own", "prompt", "query", "question", "raw", "request", "said", "shown",
    "statement", "summary", "text", "texts", "thought", "topic", "url", "value", "word", "worked",
}  # fmt: skip
SHORT_NAMES = {
    "about", "action", "address", "advice", "after", "agent", "api_key", "as_of", "asked", "aspects", "before", "body",
    "breaks", "call", "character", "chunks", "client", "columns", "counts", "day", "description", "detail", "embed",
    "end",
    "entity", "event", "expected", "explain", "features", "file", "files", "find", "fix", "folder",
    "for_project", "for_user", "form", "found", "frequency", "given", "gone", "hash", "head", "header", "hidden_id",
    "host", "id", "ids", "introductions", "item", "items", "key", "kind", "known", "label", "language",
    "last_id", "lengths", "lines", "load", "location", "many", "mark", "marked", "match", "method", "missing", "model",
    "model_key", "module", "name", "named", "names", "note", "notice", "object", "on_ready", "origin", "outcome",
    "package", "page",
    "pairs", "parts", "path", "pattern", "payload", "pieces", "plural", "problem", "prefix", "previous",
    "procedure", "program",
    "proposed", "reason", "reasons", "relation", "repository", "request_id", "rest", "result", "results",
    "role", "route", "rows", "scope", "section", "separator", "server", "service", "session", "singular", "slot",
    "slot_prefix", "source", "sources", "space", "speaker", "speakers", "stage", "stem", "stems", "steps",
    "store", "stored", "subject", "tables", "task", "task_id", "template", "tenant", "than", "to", "told",
    "token", "tombstones", "tool", "tools", "topics", "turn", "user", "values", "variable", "verb", "version",
    "weights", "what", "when", "where", "who", "why", "words", "work",
}  # fmt: skip

# One unit each, repeated up to the wanted length.
UNITS = {
    "letters": "a",
    "accents": "é",
    "marks on a letter": "e\u0301",
    "marks alone": "\u0301",
    "marks out of order": "\u0301\u0316",
    "capitals": "aB",
    "umlauts": "ü",
    "sharp s": "ß",
    "dotted capitals": "İ",
    "ideographs": "漢",
    "Arabic": "ش",
    "joined emoji": "👩\u200d",
    "zero-width": "\u200b",
    "digits": "1",
    "card groups": "4111 ",
    "phone groups": "+1 (555) ",
    "spaces": " ",
    "line breaks": "\n",
    "Windows line breaks": "\r\n",
    "tabs": "\t",
    "words": "tea ",
    "commas": "a, ",
    "sentences": "I like tea. ",
    "questions": "Why? ",
    "dots": ".",
    "backslashes": "\\",
    "quotes": '"',
    "apostrophes": "'",
    "backticks": "`",
    "fences": "```\n",
    "opening brackets": "(",
    "closing brackets": ")",
    "square brackets": "[",
    "braces": "{",
    "opening tags": "<",
    "comments": "<!-- ",
    "ids": "<!-- id: a",
    "stars": "*",
    "underscores": "_",
    "hyphens": "-",
    "bullets": "- a\n",
    "headings": "# a\n",
    "block quotes": "> ",
    "colons": "a: ",
    "equal signs": "a=",
    "pipes": "a | b\n",
    "mails": "a@b.",
    "at signs": "@",
    "URLs": "http://a:b@",
    "keys": "sk-",
    "key blocks": "-----BEGIN A",
    "passwords": "password is ",
    "tokens": "eyJ.",
    "speakers": "Ana: a\n",
    "headers": "From: a\n",
    "log lines": "2026-01-01 10:00: a\n",
    "recalled items": '- "a" (2026-01-01',
    "recalled headings": "## Facts\n",
    "statements": "my name is Ana and ",
    "requests to forget": "forget my city, ",
    "conditions": "if I were ",
    "JSON": '{"a":',
    "slashes": "/a",
    "snake case": "a_b",
    "percent": "%s{}",
    "control characters": "\x1b[",
    "private use": "\ue000",
    "unclosed comments": "<!-- a\n",
    "unclosed fences": "```x\n",
}
# A beginning, a unit and an end: a pattern may read far before it fails.
EDGED = {
    "capitals before an ideograph": ("", "aB", "漢"),
    "letters before a digit": ("", "a", "1"),
    "spaces before a letter": ("", " ", "x"),
    "unclosed quotation": ('"', "a ", ""),
    "unclosed item": ('- "', "a ", "\n"),
    "unclosed tag": ("<a ", "b=c ", ""),
    "unclosed link": ("[a](", "b", ""),
    "unclosed key block": ("-----BEGIN PRIVATE KEY-----\n", "a\n", ""),
    "mail without a domain": ("", "a.", "@"),
    "long name": ("my name is ", "Ana ", "."),
    "statement in one sentence": ("I live in ", "a, b and ", "."),
    "deep bullets": ("- a\n", "  - b\n", ""),
    "blank lines before an item": ("- a\n", "\n", "x"),
}
KINDS = {kind: ("", unit, "") for kind, unit in UNITS.items()} | EDGED
FILL: dict[str, Callable[[str], Any]] = {
    "before": lambda text: [text],
    "count": lambda text: estimate_tokens,
    "day": lambda text: "2026-11-15",
    "end": len,
    "form": lambda text: "NFKD",
    "gone": lambda text: (),
    "id": lambda text: "a",
    "key": lambda text: b"key",
    "kind": lambda text: "turn",
    "last": lambda text: False,
    "limit": lambda text: 1_000,
    "budget": lambda text: 500,
    "metadata": lambda text: {},
    "more": lambda text: 3,
    "new": lambda text: (),
    "now": lambda text: NOW,
    "size": lambda text: estimate_tokens,
    "slot": lambda text: "user.city",
    "speakers": lambda text: ("Ana",),
    "spans": lambda text: [(place, place + 1) for place in range(0, len(text), 10)],
    "start": lambda text: 0,
    "stems": lambda text: ("pass", "secret"),
    "where": lambda text: "here",
}


def find_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every public function and method of PARTS with a text among its parameters, by its full name."""
    for name, function in walk_functions():
        if TEXT_NAMES & set(list_text_parameters(function)):
            yield name, function


def walk_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for part in PARTS:
        package = importlib.import_module(f"engrain.{part}")
        for found in pkgutil.walk_packages(package.__path__, f"engrain.{part}."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if name.startswith("_") or getattr(value, "__module__", None) != found.name:
                    continue
                members = vars(value).items() if inspect.isclass(value) else [("", value)]
                for member, function in members:
                    function = inspect.unwrap(getattr(function, "__func__", function))
                    if inspect.isfunction(function) and not member.startswith("_"):
                        yield ".".join(filter(None, (found.name, name, member))), function


def list_text_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that may be a str or bytes, alone or in a list."""
    named = inspect.signature(function).parameters
    return [name for name, one in named.items() if _IS_TEXT.search(str(one.annotation))]


def fill_call(function: Callable[..., Any]) -> Call | None:
    """Return a call with a text and fitting values for all that is required, or None if something is unknown."""
    makers: dict[str, Callable[[str], Any]] = {}
    for name, one in inspect.signature(function).parameters.items():
        if name in TEXT_NAMES:
            makers[name] = _choose_maker(name, str(one.annotation))
        elif one.default is inspect.Parameter.empty:
            if name not in FILL:
                return None
            makers[name] = FILL[name]

    def call(text: str) -> object:
        values = {name: make(text) for name, make in makers.items()}
        result = function(**values)
        return list(result) if inspect.isgenerator(result) else result

    return call


def _choose_maker(name: str, annotation: str) -> Callable[[str], Any]:
    if "str" not in annotation:
        return encode
    if "[str]" in annotation:
        return lambda text: [text]
    return str.lower if name == "lower" else str


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def measure_cpu(call: Call, text: str, tries: int) -> float:
    """Return the CPU seconds of the best try. An error is an answer, too."""
    best = float("inf")
    gc.disable()  # a collection looks at the objects of all tests before
    try:
        for _ in range(tries):
            began = time.process_time()
            with suppress(EngrainError, ValueError):
                call(text)
            best = min(best, time.process_time() - began)
    finally:
        gc.enable()
    return best


def make_text(kind: str, length: int) -> str:
    head, unit, tail = KINDS[kind]
    body = (unit * (length // len(unit) + 1))[: length - len(head) - len(tail)]
    return head + body + tail


def find_worst_growth(call: Call, kind: str, sizes: tuple[int, ...]) -> tuple[float, int]:
    """Double the text from size to size, and return the largest t(2n)/t(n) with its 2n.

    Times below MIN_SECONDS count as linear. A suspicious ratio is measured again, best of three.
    """
    took: dict[int, float] = {}

    def measure(size: int) -> float:
        if size not in took:
            took[size] = measure_cpu(call, make_text(kind, size), 1)
        return took[size]

    worst = (0.0, 0)
    for size in sizes[-1:] if _is_linear_from_end_to_end(measure, sizes) else sizes:
        if measure(size) >= MIN_SECONDS:
            worst = max(worst, (_compare_with_half(call, kind, size, measure), size))
        if worst[0] >= MAX_GROWTH:
            break
    return worst


def _is_linear_from_end_to_end(measure: Callable[[int], float], sizes: tuple[int, ...]) -> bool:
    """Whether the doublings between can be left out: the time grows with the length from the first size to the last.

    It grows as much in the last doubling. A function that is quadratic up to a limit, and reads no more of the text,
    does not; nor does one that is quadratic only for long texts.
    """
    first, last = sizes[0], sizes[-1]
    if len(sizes) == 1 or measure(first) * last / first >= MAX_SECONDS:
        return False  # from the first size on, so that one that is far too slow is found by a short text
    if measure(last) < MIN_SECONDS:
        return True
    growth = (measure(last) / max(measure(first), 1e-9)) ** (1 / math.log2(last / first))
    return max(abs(growth - 2), abs(measure(last) / measure(last // 2) - 2)) < NEARLY


def _compare_with_half(call: Call, kind: str, size: int, measure: Callable[[int], float]) -> float:
    ratio = measure(size) / max(measure(size // 2), 1e-9)
    # Other programs disturb a short measurement: three rounds must agree that the time grows too fast.
    for _ in range(3):
        if ratio < SUSPICIOUS:
            break
        half = measure_cpu(call, make_text(kind, size // 2), 3)
        whole = measure_cpu(call, make_text(kind, size), 3)
        ratio = whole / max(half, 1e-9)
        if ratio >= MAX_GROWTH and whole < SHORT_SECONDS:
            # Memory that the process asks for makes steps in short times. Longer texts tell if it is more than a step.
            longest = measure_cpu(call, make_text(kind, size * 4), 3)
            ratio = (longest / max(half, 1e-9)) ** (1 / 3)
    return ratio
