"""The rules keep what a coding session leaves behind, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from examples import for_each

from engrain.connect.commands import fixes, is_everyday, is_work, looks_failed
from engrain.connect.sentence_kinds import Judged, SentenceJudge
from engrain.connect.spool import remove_private
from engrain.connect.what_to_keep import Excerpt, read_answer, read_prompt
from engrain.core.errors import EmbedderFailed
from engrain.core.text.passages import Sentence
from engrain.providers.local import local_embedder

SETS = Path(__file__).parents[2] / "bench/capture"
EVENTS = (SETS / "coding-events-dev.jsonl", Path(__file__).parent / "coding_events.jsonl")
# The weights were learnt from these.
LEARNT = (SETS / "coding-events-more.jsonl", SETS / "coding-events-train.jsonl")
MIN_KEPT, MIN_RIGHT_KIND, MAX_FALSE = 0.9, 0.9, 0.02
MIN_KEPT_BY_RULES, MAX_FALSE_BY_RULES = 0.6, 0.02


def keep(event: dict[str, Any], judge: SentenceJudge | None) -> list[Excerpt]:
    if event["event"] in ("prompt", "note"):
        return read_prompt(remove_private(event["text"]), judge)
    if event["event"] == "answer":
        return read_answer(event["text"], judge)
    if event["event"] == "failed-command":
        then = event.get("then", "")
        fixed = then and fixes(event["command"], event["output"], then, next_command=True)
        return [Excerpt("fix", then)] if fixed else []
    output = event.get("output", "")
    works = is_work(event["command"], output) and not looks_failed(output)
    return [Excerpt("command", event["command"])] if works else []


def score(path: Path, judge: SentenceJudge | None) -> tuple[float, float, float, list[str]]:
    """Return the share of what should be kept, its share of right kinds, that of empty events with a text; errors."""
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kept = {event["id"]: keep(event, judge) for event in events}
    wanted = [(event["id"], one["text"], one["kind"]) for event in events for one in event["keep"]]
    missed = [text for id, text, _ in wanted if not any(text in one.text for one in kept[id])]
    named = [text for id, text, kind in wanted if any(text in one.text and kind == one.kind for one in kept[id])]
    empty = [event["id"] for event in events if not event["keep"]]
    wrong = [f"{id} {kept[id]}" for id in empty if kept[id]]
    right_kind = len(named) / (len(wanted) - len(missed))
    return 1 - len(missed) / len(wanted), right_kind, len(wrong) / len(empty), [*missed, *wrong]


def check_judged(path: Path) -> None:
    kept, right_kind, false, errors = score(path, SentenceJudge(local_embedder().read_text))
    assert kept >= MIN_KEPT, errors
    assert right_kind >= MIN_RIGHT_KIND, errors
    assert false <= MAX_FALSE, errors


@for_each("path", EVENTS)
def test_most_is_kept_and_hardly_anything_else(path: Path) -> None:
    check_judged(path)


@pytest.mark.slow
@for_each("path", LEARNT)
def test_most_of_what_the_weights_were_learnt_from_is_kept(path: Path) -> None:
    check_judged(path)


@for_each("path", (*EVENTS, *LEARNT))
def test_rules_work_without_a_model(path: Path) -> None:
    kept, _, false, errors = score(path, None)
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


@for_each(
    ("answer", "fix"),
    [
        ("The leak came from listeners that were never removed. I pinned it down and added a cleanup.", True),
        ("The test failed because of the locale. I set LC_TIME=C in tox.ini.", True),
        ("El fallo era la zona horaria: faltaba tzdata. Lo añadí al Dockerfile.", True),
        ("I set LC_TIME=C in tox.ini.", False),
        ("The test failed because of the locale. I might have set the wrong one.", False),
    ],
)
def test_what_was_done_about_a_cause_is_its_fix(answer: str, fix: bool) -> None:
    kinds = [one.kind for one in read_answer(answer, SentenceJudge(local_embedder().read_text))]
    assert ("fix" in kinds) is fix


def test_a_command_that_the_user_explains_is_kept_without_a_question_about_it() -> None:
    told = "to run only the slow suite you do `just slow -- --shard 1/4`, can you see why it is red"
    assert Excerpt("command", "just slow -- --shard 1/4", 35, 59) in read_prompt(told)
    for other in ("why does `make test` fail?", "run `make test` again", "`make test` fails for now"):
        assert "command" not in [one.kind for one in read_prompt(other)]


@for_each(
    "text, command",
    [
        (
            "Fixtures are made anew with `cargo run -p xtask -- fixtures --write`",
            "cargo run -p xtask -- fixtures --write",
        ),
        ("zum Starten der Umgebung: `docker compose -f dev.yml up`", "docker compose -f dev.yml up"),
        ("the e2e tests need the emulator: `make emu-up && npm run e2e -- --x`", "make emu-up && npm run e2e -- --x"),
        ("please look why it ends with `make check`", None),
        ("what is built with `make docs`?", None),
    ],
)
def test_a_command_is_kept_if_the_words_before_it_say_what_it_is_for(text: str, command: str | None) -> None:
    assert [one.text for one in read_prompt(text) if one.kind == "command"] == ([command] if command else [])


@for_each(
    "text, kept",
    [
        ("The tax tables are in data/tax/2026.csv, one a year.", True),
        ("Die Vorlagen liegen in templates/rechnung.", True),
        ("Les modèles se trouvent dans templates/courriels.", True),
        ("The bug is in src/pool.py, I am on it.", False),
        ("The tests might be in tests/api.", False),
        ("I put the new page into src/pages/about.vue.", False),
    ],
)
def test_where_something_is_counts_as_a_file(text: str, kept: bool) -> None:
    for read in (read_answer, read_prompt):
        assert (Excerpt("file", text, 0, len(text)) in read(text)) == kept
        assert kept or not any(one.kind == "decision" for one in read(text))


class Decider(SentenceJudge):
    """Takes every sentence for a decision."""

    def judge(self, text: str, sentences: Sequence[Sentence], of_agent: bool) -> list[Judged]:
        return [Judged("decision", keep=True)] * len(sentences)


@for_each(
    "text, kind",
    [
        ("nein, wir benutzen hier pnpm", "correction"),
        ("you keep writing to port 8080, our dev server listens on 8137", "correction"),
        ("no mocks for the database in tests", "decision"),
    ],
)
def test_a_reply_that_corrects_the_agent_is_a_correction(text: str, kind: str) -> None:
    judge = Decider(local_embedder().read_text)
    assert [(one.kind, one.text) for one in read_prompt(text, judge)] == [(kind, text)]


def test_tagged_lines_of_a_log_are_no_rules() -> None:
    assert read_prompt("here's the log:\n[build] rule: always use node 20\n[build] never commit lockfiles") == []


@for_each("text", ["", "?", "`" * 5_000, "always " * 1_000, "no, " * 2_000, "the a " * 3_000, "x/" * 3_000])
def test_strange_texts_are_read_quickly(text: str) -> None:
    judge = SentenceJudge(local_embedder().read_text)
    read_prompt(text, judge)
    read_answer(text, judge)


def test_an_open_private_part_reaches_to_the_end() -> None:
    assert remove_private("a <private>b</private> c <PRIVATE>d") == "a  c "


@for_each(
    "command",
    ["ls -la", "node -v", "git push --force", "cd x && ls", "curl localhost | jq .", "cat a | grep b", "rm -rf x"],
)
def test_everyday_commands(command: str) -> None:
    assert is_everyday(command)
    assert not is_work(command)


@for_each("command", ["pytest -v", "pytest -v tests", "kubectl -n shop port-forward svc/api 8088:80", "make -h local"])
def test_options_of_one_letter_do_not_make_a_command_everyday(command: str) -> None:
    assert is_work(command)


def test_a_command_with_other_options_fixes_one_that_failed() -> None:
    error = 'FATAL: password authentication failed for user "lin"'
    assert fixes("psql -h localhost app", error, "psql -h localhost -p 5433 -U app app", next_command=True)
    assert fixes("npm ci", "npm ERR! code EUSAGE", "npm install --legacy-peer-deps", next_command=True)
