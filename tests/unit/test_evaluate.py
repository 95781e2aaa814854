"""`engrain evaluate`: scripts are checked, played in a fresh memory, and scored by what the memory really holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engrain.bench.evaluate import Report, evaluate_files, read_script
from engrain.cli.main import root
from engrain.core.errors import EngrainError, InvalidInput, UnknownKey

LIVES = {"type": "message", "text": "I live in Vienna.", "keeps": [{"id": "old", "text": "I live in Vienna"}]}
MOVES = {
    "type": "message", "session": "2", "text": "I moved to Graz.", "at": "2026-06-01",
    "keeps": [{"id": "new", "text": "I moved to Graz", "replaces": "old"}],
}  # fmt: skip


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


def play(path: Path, *records: dict[str, Any]) -> Report:
    (report,) = evaluate_files([write(path / "script.jsonl", *records)]).values()
    return report


def test_a_change_is_kept_replaces_the_old_value_and_answers_the_question(tmp_path: Path) -> None:
    ask = {"type": "question", "text": "Where do I live?", "answers": ["Graz"], "stale": ["Vienna"]}
    lines = {"type": "facts", "true": ["Graz"], "false": ["Vienna"]}
    report = play(tmp_path, LIVES, MOVES, ask, lines)
    assert (report.kept.right, report.kept.of) == (2, 2)
    assert (report.replaced.right, report.replaced.of) == (1, 1)
    assert (report.answers.right, report.fresh.right, report.true_lines.right) == (1, 1, 1)
    assert (report.false_lines.right, report.false_lines.of) == (0, 1)


def test_a_fact_beside_the_replaced_one_may_stand(tmp_path: Path) -> None:
    beside = {"type": "message", "text": "I live in Vienna. I like to cook in the evening."}
    report = play(tmp_path, beside | {"keeps": LIVES["keeps"]}, MOVES)
    assert (report.replaced.right, report.replaced.of) == (1, 1)


def test_what_was_not_kept_is_a_miss_with_its_words(tmp_path: Path) -> None:
    odd = {"type": "message", "id": "m1", "text": "Zzyzx blorp?", "keeps": [{"text": "Zzyzx blorp"}]}
    ask = {"type": "question", "id": "q1", "text": "What is the capital of Peru?", "answers": ["Lima"]}
    report = play(tmp_path, odd, ask)
    assert report.kept.misses == ["m1: Zzyzx blorp"]
    assert report.answers.misses == ["q1: What is the capital of Peru?"]


def test_a_fact_of_a_message_with_nothing_to_keep_is_false(tmp_path: Path) -> None:
    report = play(tmp_path, {"type": "message", "text": "I live in Vienna."})
    assert (report.false_facts.right, report.false_facts.of) == (1, 1)


def test_a_new_memory_knows_nothing_of_the_one_before(tmp_path: Path) -> None:
    ask = {"type": "question", "text": "Where do I live?", "empty": True}
    talk = {"type": "message", "text": "hello there"}
    report = play(tmp_path, LIVES, {"type": "memory", "id": "other"}, talk, ask)
    assert (report.empty.right, report.empty.of) == (1, 1)


@pytest.mark.parametrize(
    ("line", "error", "said"),
    [
        ('{"type": "massage"}', UnknownKey, "unknown type 'massage'"),
        ('{"type": "message"}', InvalidInput, "'text' is missing"),
        ('{"type": "message", "text": "a", "keeps": [{"text": "b"}]}', InvalidInput, "is not a part of the message"),
        ('{"type": "message", "text": "a", "role": "boss"}', InvalidInput, "role must be one of"),
        ('{"type": "message", "text": "a", "at": "soon"}', InvalidInput, "ISO 8601"),
        ('{"type": "question", "text": "a"}', InvalidInput, 'needs "answers"'),
        ("{", InvalidInput, "is not JSON"),
        ("[]", InvalidInput, "a record is an object"),
        ('{"type": "session", "id": "1"}', InvalidInput, "has no message"),
        (
            '{"type": "message", "text": "I moved.", "keeps": [{"text": "I moved", "replaces": "city"}]}',
            InvalidInput,
            "line 1: '0.0' replaces 'city', which no message before keeps",
        ),
        (
            '{"type": "message", "text": "Forget it.", "forgets": ["city"]}',
            InvalidInput,
            "line 1: the message forgets 'city', which no message before keeps",
        ),
    ],
)
def test_a_broken_script_names_the_line(tmp_path: Path, line: str, error: type[EngrainError], said: str) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line, encoding="utf-8")
    with pytest.raises(error, match=r"s\.jsonl") as caught:
        read_script(path)
    assert said in str(caught.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_script(path)


def test_the_command_prints_a_table_misses_and_json(tmp_path: Path) -> None:
    path = str(write(tmp_path / "s.jsonl", LIVES, {"type": "message", "id": "x", "text": "I live in Graz."}))
    shown = CliRunner().invoke(root, ["evaluate", path, "--misses"])
    assert shown.exit_code == 0
    assert "1 of 1" in shown.output
    assert "false_facts: x:" in shown.output
    report = json.loads(CliRunner().invoke(root, ["evaluate", path, "--json"]).output)
    assert report[path]["kept"] == {"right": 1, "of": 1, "hits": ["0: I live in Vienna"], "misses": []}
