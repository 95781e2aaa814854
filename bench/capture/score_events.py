"""Score the rules of connected coding agents on events of coding sessions.

Run: python bench/capture/score_events.py [FILE]
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from engrain.connect.commands import fixes, is_work, looks_failed
from engrain.connect.rules import Kept, read_answer, read_prompt
from engrain.connect.spool import remove_private


def read_event(event: dict[str, Any]) -> list[Kept]:
    """Apply the rules that the kind of the event calls for."""
    if event["event"] == "prompt":
        return read_prompt(remove_private(event["text"]))
    if event["event"] == "answer":
        return read_answer(event["text"])
    if event["event"] == "failed-command":
        then = event.get("then", "")
        worked = then and fixes(event["command"], event.get("output", ""), then, next_command=True)
        return [Kept("fix", then)] if worked else []
    if event["event"] == "command" and is_work(event["command"]) and not looks_failed(event.get("output", "")):
        return [Kept("command", event["command"])]
    return []


def holds(kept: str, wanted: str) -> bool:
    """A wanted text is kept if it stands as a whole in one kept text."""
    return " ".join(wanted.split()).casefold() in " ".join(kept.split()).casefold()


def main(path: Path) -> int:
    events = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    events = [event for event in events if event.get("type") != "note"]
    counts: Counter[str] = Counter()
    for event in events:
        kept = read_event(event)
        counts["empty"] += not event["keep"]
        for wanted in event["keep"]:
            found = [one for one in kept if holds(one.text, wanted["text"])]
            counts["wanted"] += 1
            counts["kept"] += bool(found)
            counts["kind"] += any(one.kind == wanted["kind"] for one in found)
            if not found:
                sys.stdout.write(f"missed {event['id']} {wanted['kind']}: {wanted['text']!r}, kept {kept}\n")
        extra = [one for one in kept if not any(holds(one.text, wanted["text"]) for wanted in event["keep"])]
        counts["extra"] += len(extra)
        counts["false"] += bool(extra) and not event["keep"]
        for one in extra:
            sys.stdout.write(f"extra  {event['id']} {one.kind}: {one.text!r}\n")
    sys.stdout.write(
        f"kept {counts['kept']} of {counts['wanted']}, of the right kind {counts['kind']};"
        f" {counts['false']} of {counts['empty']} events with nothing to keep left something;"
        f" {counts['extra']} extra\n"
    )
    return 0


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "coding-events-dev.jsonl"
    sys.exit(main(Path(__file__).parent / name))
