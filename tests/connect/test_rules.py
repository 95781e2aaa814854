"""The rules keep what a coding session leaves behind, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples import for_each

from engrain.connect.commands import fixes, is_everyday, is_work, looks_failed
from engrain.connect.rules import read_answer, read_prompt
from engrain.connect.spool import remove_private

EVENTS = (
    Path(__file__).parents[2] / "bench/capture/coding-events-dev.jsonl",
    Path(__file__).parents[2] / "bench/capture/coding-events-more.jsonl",
    Path(__file__).parent / "coding_events.jsonl",
)
MIN_KEPT, MAX_FALSE = 0.85, 0.03


def keep(event: dict[str, Any]) -> list[str]:
    if event["event"] == "prompt":
        return [one.text for one in read_prompt(remove_private(event["text"]))]
    if event["event"] == "answer":
        return [one.text for one in read_answer(event["text"])]
    if event["event"] == "failed-command":
        then = event.get("then", "")
        return [then] if then and fixes(event["command"], event["output"], then, next_command=True) else []
    worked = event["event"] == "command" and is_work(event["command"]) and not looks_failed(event["output"])
    return [event["command"]] if worked else []


@for_each("path", EVENTS)
def test_most_is_kept_and_hardly_anything_else(path: Path) -> None:
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kept = {event["id"]: keep(event) for event in events}
    wanted = [(event["id"], one["text"]) for event in events for one in event["keep"]]
    missed = [text for id, text in wanted if not any(text in one for one in kept[id])]
    wrong = [(event["id"], kept[event["id"]]) for event in events if not event["keep"] and kept[event["id"]]]
    assert len(missed) <= (1 - MIN_KEPT) * len(wanted), missed
    assert len(wrong) <= MAX_FALSE * sum(not event["keep"] for event in events), wrong


@for_each("text", ["", "?", "`" * 5_000, "always " * 1_000, "no, " * 2_000, "the a " * 3_000, "x/" * 3_000])
def test_strange_texts_are_read_quickly(text: str) -> None:
    read_prompt(text)
    read_answer(text)


def test_an_open_private_part_reaches_to_the_end() -> None:
    assert remove_private("a <private>b</private> c <PRIVATE>d") == "a  c "


@for_each(
    "command", ["ls -la", "git push --force", "cd x && ls", "curl localhost | jq .", "cat a | grep b", "rm -rf x"]
)
def test_everyday_commands(command: str) -> None:
    assert is_everyday(command)
    assert not is_work(command)
