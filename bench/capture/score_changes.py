"""Play changes and requests to forget through a real memory, and score what stands, what comes first and what is gone.

Run: python bench/capture/score_changes.py [--file changes-dev.jsonl] [--file forget-dev.jsonl] [--quiet]

Each record gets a fresh SQLite store with the local embedder. The two statements of a change lie four months apart.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engrain import Memory
from engrain.bench.evaluate import ScriptClock, Tally
from engrain.core.text.tokenizer import tokenize
from engrain.memory import Store

HERE = Path(__file__).parent
MONTHS_BETWEEN = timedelta(days=120)
# A text states a value if it holds this share of the value's words.
MIN_SHARE = 0.6
MARKS = ("held until", "- (earlier)")
LISTED = ("stands, new", "stands, both", "no stale value first", "right, certain", "right, nothing to cut")
Record = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", action="append")
    parser.add_argument("--quiet", action="store_true", help="print the rates without the misses")
    options = parser.parse_args()
    for name in options.file or ["changes-dev.jsonl", "forget-dev.jsonl"]:
        records = [json.loads(line) for line in (HERE / name).read_text("utf-8").splitlines() if line.strip()]
        records = [one for one in records if one.get("type") != "note"]
        play = play_change if "first" in records[0] else play_request
        tallies: dict[str, Tally] = {}
        for record in records:
            with open_memory() as (memory, clock):
                for measure, right, what in play(memory, clock, record):
                    tallies.setdefault(measure, Tally()).count(right, f"{record['id']}: {what}")
        report(name, tallies, quiet=options.quiet)
    return 0


@contextmanager
def open_memory() -> Iterator[tuple[Memory, ScriptClock]]:
    clock = ScriptClock()
    with TemporaryDirectory(prefix="engrain-changes-") as folder, Store(Path(folder) / "c.db", clock=clock) as store:
        yield store.memory(user="script"), clock


def report(name: str, tallies: dict[str, Tally], *, quiet: bool) -> None:
    sys.stdout.write(f"{name}\n")
    for measure, tally in sorted(tallies.items()):
        sys.stdout.write(f"  {measure:<28} {tally.right:>4} of {tally.of:<4} {tally.right / tally.of:.3f}\n")
    for measure in () if quiet else LISTED:
        for miss in tallies[measure].misses if measure in tallies else ():
            sys.stdout.write(f"  {measure}: {miss}\n")


def play_change(memory: Memory, clock: ScriptClock, record: Record) -> Iterator[tuple[str, bool, str]]:
    """Yield (measure, right, description) for one change."""
    said: list[str] = []
    for text in (record["first"], record["later"]):
        memory.start_session()
        said.append(memory.add_message("user", text).id)
        memory.end_session()
        clock.advance(clock.now + MONTHS_BETWEEN)
    current = memory.list({"kind": "fact"}, limit=100)
    stands = [
        any(cite.item == id for item in current for source in item.sources for cite in source.cites) for id in said
    ]
    texts = [item.text for item in current]
    shown = f"{record['first']} -> {record['later']}: {texts}"
    wanted = [record["expect"] == "both", True]
    yield f"stands, {record['expect']}", stands == wanted, shown
    yield "stands, all", stands == wanted, shown
    if stands[1]:
        yield "of those kept, right", stands == wanted, shown
    found = memory.recall(record["question"])
    lines = [str(hit) for hit in found]
    if record["expect"] == "new":
        fresh = is_fresh(lines, record["old_value"], record["new_value"])
        yield "no stale value first", fresh, f"{record['question']} {lines}"
        yield "current value in recall", any(states(line, record["new_value"]) for line in lines), f"{lines}"
    else:
        both = all(any(states(line, record[key]) for line in lines) for key in ("old_value", "new_value"))
        yield "both values in recall", both, f"{record['question']} {lines}"


def is_fresh(lines: list[str], old: str, new: str) -> bool:
    """Tell if no unmarked line with the old value comes before the first with the new one."""
    for line in lines:
        if states(line, new):
            return True
        if states(line, old) and not any(mark in line for mark in MARKS):
            return False
    return True


def states(text: str, value: str) -> bool:
    words, held = tokenize(value), set(tokenize(text))
    return sum(word in held for word in words) >= MIN_SHARE * len(words)


def play_request(memory: Memory, clock: ScriptClock, record: Record) -> Iterator[tuple[str, bool, str]]:
    """Yield (measure, right, description) for one request to forget."""
    memory.start_session()
    ids: dict[str, str] = {}
    for message in record["messages"]:
        ids[message["id"]] = memory.add_message("user", message["text"]).id
        clock.advance(clock.now + timedelta(minutes=5))
    result = memory.add_message("user", record["request"])
    texts = {one["id"]: one["text"] for one in record["messages"]}
    gone = {id for id, text in texts.items() if is_gone(memory, ids[id], text)}
    targets = set(record["targets"])
    shown = f"{record['request']!r} cut {[texts[id] for id in sorted(gone)]}, meant {[texts[id] for id in targets]}"
    why = "certain" if record["certain"] else record["why"]
    right = gone == (targets if record["certain"] else set())
    yield "right, all", right, shown
    yield f"right, {'certain' if record['certain'] else 'nothing to cut'}", right, shown
    yield "nothing else was cut", gone <= (targets if record["certain"] else set()), shown
    if why in ("several", "none"):
        proposed = {id for id in texts if is_proposed(memory, ids[id], result.proposed)}
        fits = bool(proposed & targets) if why == "several" else not gone
        yield f"proposed, {why}", fits, f"{record['request']!r} {[texts[id] for id in proposed]}"


def is_gone(memory: Memory, id: str, text: str) -> bool:
    """Tell if neither the message nor a fact that cites it states the text."""
    message = memory.get(id)
    facts = [item.text for item in memory.list(limit=200) if cites(item, id)]
    return not any(states(one, text) for one in ([message.text] if message else []) + facts)


def is_proposed(memory: Memory, id: str, proposed: tuple[str, ...]) -> bool:
    return id in proposed or any((item := memory.get(one)) and cites(item, id) for one in proposed)


def cites(item: Any, id: str) -> bool:
    return any(cite.item == id for source in item.sources for cite in source.cites)


if __name__ == "__main__":
    sys.exit(main())
