"""The rules keep what a coding session leaves behind, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples import for_each

from engrain.connect.commands import fixes, is_everyday, is_work, looks_failed
from engrain.connect.rules import read_answer, read_prompt
from engrain.connect.sentence_kinds import SentenceJudge
from engrain.connect.spool import remove_private
from engrain.core.errors import EmbedderFailed
from engrain.providers.local import local_embedder

EVENTS = (
    Path(__file__).parents[2] / "bench/capture/coding-events-dev.jsonl",
    Path(__file__).parents[2] / "bench/capture/coding-events-more.jsonl",
    Path(__file__).parents[2] / "bench/capture/coding-events-train.jsonl",
    Path(__file__).parent / "coding_events.jsonl",
)
MIN_KEPT, MAX_FALSE = 0.9, 0.02
MIN_KEPT_BY_RULES, MAX_FALSE_BY_RULES = 0.6, 0.02


def keep(event: dict[str, Any], judge: SentenceJudge | None) -> list[str]:
    if event["event"] in ("prompt", "note"):
        return [one.text for one in read_prompt(remove_private(event["text"]), judge)]
    if event["event"] == "answer":
        return [one.text for one in read_answer(event["text"], judge)]
    if event["event"] == "failed-command":
        then = event.get("then", "")
        return [then] if then and fixes(event["command"], event["output"], then, next_command=True) else []
    output = event.get("output", "")
    return [event["command"]] if is_work(event["command"], output) and not looks_failed(output) else []


def score(path: Path, judge: SentenceJudge | None) -> tuple[float, float, list[str]]:
    """Return the share of what should be kept, that of empty events that left something, and the errors."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kept = {event["id"]: keep(event, judge) for event in events}
    wanted = [(event["id"], one["text"]) for event in events for one in event["keep"]]
    missed = [text for id, text in wanted if not any(text in one for one in kept[id])]
    empty = [event["id"] for event in events if not event["keep"]]
    wrong = [f"{id} {kept[id]}" for id in empty if kept[id]]
    return 1 - len(missed) / len(wanted), len(wrong) / len(empty), [*missed, *wrong]


@for_each("path", EVENTS)
def test_most_is_kept_and_hardly_anything_else(path: Path) -> None:
    kept, false, errors = score(path, SentenceJudge(local_embedder().read_text))
    assert kept >= MIN_KEPT, errors
    assert false <= MAX_FALSE, errors


@for_each("path", EVENTS)
def test_rules_work_without_a_model(path: Path) -> None:
    kept, false, errors = score(path, None)
    assert kept >= MIN_KEPT_BY_RULES, errors
    assert false <= MAX_FALSE_BY_RULES, errors


def test_an_embedder_that_fails_leaves_the_rules() -> None:
    def fail(*_: object) -> Any:
        raise EmbedderFailed("the weights are gone")

    text = "no, use pnpm, not npm"
    assert [one.kind for one in read_prompt(text, SentenceJudge(fail))] == ["correction"]


def test_a_long_answer_is_judged_to_its_end() -> None:
    filler = "I looked at another file and it was fine. " * 60
    cause = "The duplicates come from the left join on shipments without a distinct: one row per shipment."
    judge = SentenceJudge(local_embedder().read_text)
    assert cause in [one.text for one in read_answer(filler + cause, judge)]


@for_each("text", ["", "?", "`" * 5_000, "always " * 1_000, "no, " * 2_000, "the a " * 3_000, "x/" * 3_000])
def test_strange_texts_are_read_quickly(text: str) -> None:
    judge = SentenceJudge(local_embedder().read_text)
    read_prompt(text, judge)
    read_answer(text, judge)


def test_an_open_private_part_reaches_to_the_end() -> None:
    assert remove_private("a <private>b</private> c <PRIVATE>d") == "a  c "


@for_each(
    "command", ["ls -la", "git push --force", "cd x && ls", "curl localhost | jq .", "cat a | grep b", "rm -rf x"]
)
def test_everyday_commands(command: str) -> None:
    assert is_everyday(command)
    assert not is_work(command)
