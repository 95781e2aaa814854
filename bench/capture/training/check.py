"""Check the training sentences of the capture head and count them per persona.

Run: python bench/capture/training/check.py
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Record = dict[str, Any]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ASPECTS = words(
    "name age birthday city address origin nationality language job employer education phone email account family"
    " partner friend pet health allergy diet food drink hobby sport music media travel plan appointment deadline"
    " possession vehicle device home money price routine belief skill tool stack convention config architecture"
    " project team contact style workflow event schedule medication religion club work school car other"
)
KEPT_KINDS = ("fact", "preference", "instruction", "decision", "correction")
OTHER_KINDS = ("transient", "question", "hypothetical", "quoted", "sarcasm", "smalltalk", "other")
LANGUAGES = words("en de es fr it pt nl")
# More words than these between two parts are a clause that nobody labelled.
CONNECTING_WORDS = 5


def find_part_problems(part: Record) -> list[str]:
    """Compare the labels of a part with the closed lists and with each other."""
    kind, aspect, about = part.get("kind"), part.get("aspect"), part.get("about")
    if set(part) != {"text", "kind", "aspect", "about"}:
        return [f"a part has text, kind, aspect and about, not {sorted(part)}"]
    if kind in KEPT_KINDS:
        found = [] if aspect in ASPECTS else [f"unknown aspect {aspect!r}"]
        return found if isinstance(about, str) and about.strip() else [*found, f"a kept {kind} is about somebody"]
    if kind in OTHER_KINDS:
        return [] if (aspect, about) == ("none", None) else [f"a {kind} has aspect 'none' and about null"]
    return [f"unknown kind {kind!r}"]


def find_span_problems(text: str, parts: list[Record]) -> list[str]:
    """Find parts that are not in the text in order, and clauses that no part covers."""
    problems, gaps, end = [], [], 0
    for part in parts:
        span = part.get("text") or ""
        start = text.find(span, end)
        if not span.strip() or start < 0:
            problems.append(f"not in the text after the part before it: {span!r}")
            continue
        gaps.append(text[end:start])
        end = start + len(span)
    gaps.append(text[end:])
    problems += [f"no part covers {gap!r}" for gap in gaps if len(re.findall(r"\w+", gap)) > CONNECTING_WORDS]
    return problems


def find_persona_problems(head: Record, stem: str) -> list[str]:
    """Check the first line of a file."""
    problems = []
    if head.get("type") != "persona" or head.get("id") != stem:
        problems.append(f"the first line is the persona {stem!r}")
    if head.get("lang") not in LANGUAGES:
        problems.append(f"unknown language {head.get('lang')!r}")
    if not head.get("who"):
        problems.append("the persona says who it is")
    return problems


def find_message_problems(message: Record, stem: str) -> list[str]:
    """Check one message with all its parts."""
    if set(message) != {"type", "id", "text", "parts"} or message["type"] != "message":
        return [f"a message has type, id, text and parts, not {sorted(message)}"]
    problems = [] if re.fullmatch(rf"{re.escape(stem)}-\d+", message["id"]) else [f"the id is {stem}-NUMBER"]
    if not message["parts"]:
        problems.append("a message has at least one part")
    for part in message["parts"]:
        problems += find_part_problems(part)
    return problems + find_span_problems(message["text"], message["parts"])


def check_file(path: Path, seen: dict[str, str]) -> tuple[list[str], list[Record]]:
    """Return the problems of one persona's file, and its messages."""
    problems: list[str] = []
    records: list[Record] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            problems.append(f"{path.name}:{number}: {error}")
    if not records:
        return [*problems, f"{path.name}: empty"], []
    head, *messages = records
    problems += [f"{path.name}: {problem}" for problem in find_persona_problems(head, path.stem)]
    for message in messages:
        where = f"{path.name}: {message.get('id')}"
        problems += [f"{where}: {problem}" for problem in find_message_problems(message, path.stem)]
        for key in (f"id {message.get('id')}", f"text {str(message.get('text')).casefold()}"):
            if key in seen:
                problems.append(f"{where}: the same {key.split()[0]} as {seen[key]}")
            seen[key] = where
    return problems, messages


def describe(name: str, messages: list[Record]) -> str:
    """Write one line of counts: messages, parts, share kept, kinds."""
    kinds = Counter(str(part.get("kind")) for message in messages for part in message.get("parts", []))
    total = sum(kinds.values())
    kept = sum(kinds[kind] for kind in KEPT_KINDS)
    share = f"{100 * kept / total:.0f} %" if total else "-"
    listed = ", ".join(f"{kind} {kinds[kind]}" for kind in (*KEPT_KINDS, *OTHER_KINDS) if kinds[kind])
    return f"{name:<14} {len(messages):>5} messages {total:>5} parts {share:>5} kept: {listed}"


def main() -> int:
    problems: list[str] = []
    everything: list[Record] = []
    seen: dict[str, str] = {}
    for path in sorted(HERE.glob("*.jsonl")):
        found, messages = check_file(path, seen)
        problems += found
        everything += messages
        sys.stdout.write(describe(path.stem, messages) + "\n")
    sys.stdout.write(describe("all", everything) + "\n")
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
