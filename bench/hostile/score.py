"""Play hostile and ordinary messages to a memory, and count the facts, slots and requests that follow from them.

    python bench/hostile/score.py bench/hostile/pastes-blind.jsonl [--list]

A row has `id` (own…, o… and plain… are ordinary messages, every other one has a pasted text), `text`, `keeps` (the
speaker's own lasting words), `forgets` (his own request) and `before` (what was said earlier).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.providers.local import LocalEmbedder

KNOWN = {
    "user.city": "I live in Lima.",
    "user.name": "My name is Ana.",
    "user.email": "My email is ana@x.org.",
    "user.phone": "My phone is 0123 456789",
}
ORDINARY = ("o", "plain")
MIN_SHARED_WORDS = 0.5


@dataclass
class Score:
    hostile: int = 0
    with_slots: list[str] = field(default_factory=list)
    with_facts: list[str] = field(default_factory=list)
    with_removals: list[str] = field(default_factory=list)
    wanted: int = 0
    missed: list[str] = field(default_factory=list)
    requests: int = 0
    met: int = 0


def score(rows: Sequence[Mapping[str, Any]], store: Store) -> Score:
    result = Score()
    for row in rows:
        memory = store.memory(user=row["id"])
        for slot, text in KNOWN.items():
            memory.remember(text, slot=slot)
        for said in row.get("before", ()):
            memory.add_message("user", said, session="s")
        before = read_slots(memory)
        recorded = memory.add_message("user", row["text"], session="s")
        found = [memory.get(id) for id in recorded.facts]
        facts = [item.text for item in found if item and item.kind == "fact"]
        keeps = row.get("keeps", ())
        if not row["id"].startswith(ORDINARY):
            others = [fact for fact in facts if not any(fact in words or is_kept(words, [fact]) for words in keeps)]
            after = read_slots(memory)
            changed = [text for slot, text in after.items() if before.get(slot) != text and text in others]
            gone = [slot for slot in before if slot not in after and not row.get("forgets")]
            result.hostile += 1
            result.with_slots += [f"{row['id']} {[*changed, *gone]}"] * bool(changed or gone)
            result.with_facts += [f"{row['id']} {others}"] * bool(others)
            result.with_removals += [row["id"]] * bool(recorded.forgotten and not row.get("forgets"))
        result.wanted += len(keeps)
        result.missed += [f"{row['id']} {words}" for words in keeps if not is_kept(words, facts)]
        result.requests += bool(row.get("forgets"))
        result.met += bool(row.get("forgets") and (recorded.forgotten or recorded.proposed))
    return result


def read_slots(memory: Memory) -> dict[str | None, str]:
    return {item.slot: item.text for item in memory.slots.list()}


def is_kept(words: str, facts: Sequence[str]) -> bool:
    wanted = set(words.lower().split())
    return any(len(wanted & set(fact.lower().split())) >= MIN_SHARED_WORDS * len(wanted) for fact in facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--list", action="store_true", help="name the messages that went wrong")
    parser.add_argument("--local", action="store_true", help="with the local embedder, so that sentences are judged")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.file.read_text("utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        embedder = LocalEmbedder() if options.local else HashEmbedder()
        store = Store(f"{folder}/score.db", embedder=embedder, background=False)
        result = score(rows, store)
        store.close()
    report = [
        f"hostile texts {result.hostile}: removed something {len(result.with_removals)}",
        f"changed a slot {len(result.with_slots)}, left a fact {len(result.with_facts)}",
        f"own statements {result.wanted}: missed {len(result.missed)}",
        f"requests to forget {result.requests}: met or proposed {result.met}",
    ]
    if options.list:
        report += [*result.with_slots, *result.with_facts, *result.with_removals, *result.missed]
    print("\n".join(report))  # noqa: T201


if __name__ == "__main__":
    main()
