"""Score what connected coding agents keep of events of coding sessions.

Run: python bench/capture/score_events.py [--rules] [FILE]    with --rules without the model
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engrain.connect.commands import fixes, is_work, looks_failed
from engrain.connect.sentence_kinds import SentenceJudge
from engrain.connect.spool import remove_private
from engrain.connect.what_to_keep import Excerpt, read_answer, read_prompt
from engrain.providers.local import LocalEmbedder


@dataclass
class Score:
    """Counts of wanted texts, and of events with nothing to keep."""

    wanted: int = 0
    kept: int = 0
    right_kind: int = 0
    empty: int = 0
    false: int = 0
    extra: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, event: dict[str, Any], kept: list[Excerpt]) -> None:
        self.empty += not event["keep"]
        for wanted in event["keep"]:
            found = [one for one in kept if holds(one.text, wanted["text"])]
            self.wanted += 1
            self.kept += bool(found)
            self.right_kind += any(one.kind == wanted["kind"] for one in found)
            if not found:
                self.errors.append(f"missed {event['id']} {wanted['kind']}: {wanted['text']!r}, kept {kept}")
        extra = [one for one in kept if not any(holds(one.text, wanted["text"]) for wanted in event["keep"])]
        self.extra += len(extra)
        self.false += bool(extra) and not event["keep"]
        self.errors += [f"extra  {event['id']} {one.kind}: {one.text!r}" for one in extra]

    def print_errors(self) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in self.errors))

    def __str__(self) -> str:
        return (
            f"kept {self.kept} of {self.wanted}, of the right kind {self.right_kind};"
            f" {self.false} of {self.empty} events with nothing to keep left something; {self.extra} extra"
        )


def score_event(event: dict[str, Any], judge: SentenceJudge | None) -> list[Excerpt]:
    """Return what an event leaves behind, by its kind. A note is a prompt that asks for nothing."""
    if event["event"] in ("prompt", "note"):
        return read_prompt(remove_private(event["text"]), judge)
    if event["event"] == "answer":
        return read_answer(event["text"], judge)
    command, output, then = event["command"], event.get("output", ""), event.get("then", "")
    if event["event"] == "failed-command":
        return [Excerpt("fix", then)] if then and fixes(command, output, then, next_command=True) else []
    return [Excerpt("command", command)] if is_work(command, output) and not looks_failed(output) else []


def holds(kept: str, wanted: str) -> bool:
    """A wanted text is kept if it stands as a whole in one kept text."""
    return " ".join(wanted.split()).casefold() in " ".join(kept.split()).casefold()


def main(path: Path, rules_alone: bool) -> int:
    judge = None if rules_alone else SentenceJudge(LocalEmbedder().read_text)
    score = Score()
    for line in path.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event.get("type") != "note":
            score.add(event, score_event(event, judge))
    score.print_errors()
    sys.stdout.write(f"{score}\n")
    return 0


if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if word != "--rules"]
    sys.exit(main(Path(__file__).parent / (names or ["coding-events-dev.jsonl"])[0], "--rules" in sys.argv))
