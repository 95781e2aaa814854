"""A long output is shown as what it tells, and kept raw beside it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.ingest.tool_output import MAX_RAW_BYTES, MAX_SHOWN_CHARACTERS, shorten_output

ROWS = [{"id": n, "name": f"name {n}", "tags": ["a", "b"]} for n in range(20_000)]
LOG = [f"2026-01-01 12:{n // 60 % 60:02d}:{n % 60:02d} INFO request {n} served from the cache" for n in range(15_000)]


def shown(text: str, failed: bool = False) -> str:
    said, raw = shorten_output(text, "probe", failed)
    assert raw == text
    assert len(said) <= MAX_SHOWN_CHARACTERS
    assert f"{len(text):,} characters in all" in said
    return said


@given(st.text(max_size=MAX_SHOWN_CHARACTERS))
def test_a_short_output_stays_as_it_is(text: str) -> None:
    assert shorten_output(text.replace("\x00", ""), "probe") == (text.replace("\x00", ""), None)


@given(st.text(st.characters(exclude_categories=()), max_size=30), st.integers(1, 900), st.booleans())
@settings(max_examples=300)
def test_any_text_gives_something_that_can_be_stored(part: str, times: int, failed: bool) -> None:
    said, raw = shorten_output(part * times, part, failed)
    for one in (said, raw or ""):
        one.encode()
        assert "\x00" not in one
    assert len(said) <= MAX_SHOWN_CHARACTERS
    assert (raw is None) == (len(part * times) <= MAX_SHOWN_CHARACTERS)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(0, 2),
)
@settings(max_examples=200)
def test_any_json_gives_something(value: object, depth: int) -> None:
    for _ in range(depth):
        value = {"a": [value] * 30, "b": value}
    said, _ = shorten_output(json.dumps(value), None)
    assert len(said) <= MAX_SHOWN_CHARACTERS


def test_what_json_spells_as_an_escape_can_be_stored_too() -> None:
    said, _ = shorten_output(json.dumps({"a\x00b": "c\x00d. " * 900}), "probe")
    assert "\x00" not in said


def test_a_list_is_shown_by_its_length_its_shape_and_its_first_values() -> None:
    said = shown(json.dumps(ROWS[:400]))
    assert "a list of 400, each an object with id, name, tags" in said
    assert '{"id":0,"name":"name 0","tags":["a","b"]}' in said
    assert said.startswith("probe: JSON")


def test_an_object_is_shown_by_its_keys_errors_first() -> None:
    said = shown(json.dumps({"rows": ROWS[:400], "total": 400, "error": "quota reached"}))
    lines = said.split("\n")
    assert "an object with rows, total, error" in lines[0]
    assert lines[1] == 'error: "quota reached"'
    assert "rows: a list of 400, each an object with id, name, tags" in lines
    assert '{"id":0,"name":"name 0","tags":["a","b"]}' in lines


def test_of_json_too_long_to_read_the_beginning_is_shown() -> None:
    for text in (json.dumps(ROWS), json.dumps(ROWS, indent=2), json.dumps({"rows": ROWS, "total": 9})):
        said = shorten_output(text, "probe")[0]
        assert "JSON, in its first 8,192 characters" in said
        assert '{"id":0,"name":"name 0","tags":["a","b"]}' in said


def test_lines_of_json_are_counted() -> None:
    said = shown("\n".join(map(json.dumps, ROWS[:3000])))
    assert "3,000 lines of JSON, the first an object with id, name, tags" in said
    assert '{"id": 0' in said


def test_a_text_inside_json_is_shown_by_its_own_form() -> None:
    log = [*LOG[:900], "ERROR the disk is full", *LOG[:900]]
    said = shown(json.dumps({"exit_code": 1, "stdout": "\n".join(log)}))
    assert "exit_code: 1" in said
    assert "ERROR the disk is full" in said


def test_a_table_is_shown_by_its_head_and_first_rows() -> None:
    rows = [f'{n},"Ana, {n}",{n * 2}' for n in range(500)]
    said = shown("\n".join(["id,name,score", *rows]) + "\n")
    assert "A table of 500 rows" in said
    assert "id,name,score\n0," in said
    assert '4,"Ana, 4",8' in said
    assert "\n9," not in said


def test_of_a_log_the_failures_and_the_last_lines_are_shown() -> None:
    log = [*LOG[:300], "2026-01-01 ERROR worker 7 lost", *LOG[:300], "2026-01-01 ERROR worker 9 lost", *LOG[300:600]]
    said = shown("\n".join(log))
    assert "ERROR worker 7 lost" in said
    assert "ERROR worker 9 lost" not in said, "the same failure once"
    assert said.endswith("request 599 served from the cache")


def test_of_a_failure_its_last_words_are_shown() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in run\n    go()\nValueError: no such port'
    said = shown("The tests begin. They are many. All of them run.\n" * 100 + trace, failed=True)
    assert said.endswith(trace)


def test_many_failures_leave_room_for_the_last_lines() -> None:
    said = shown("".join(f"error {chr(97 + n % 26) * 150}\n" for n in range(900)) + "done: 3 of 900 kept")
    assert said.endswith("done: 3 of 900 kept")


def test_of_prose_the_telling_sentences_are_shown_in_order() -> None:
    filler = "Some people walked by and nothing else happened that day. "
    text = (
        "The treaty of Lisbon was signed in 1668. " + filler * 60
        + "The treaty of Lisbon gave Ceuta to Spain. " + filler * 20
    )  # fmt: skip
    said = shown(text)
    assert said.split("\n")[1] == "The treaty of Lisbon was signed in 1668."
    assert "telling sentences" in said


def test_a_raw_output_is_cut_at_its_limit_with_a_mark() -> None:
    for text in ("x" * (MAX_RAW_BYTES + 1), "é" * MAX_RAW_BYTES, "😀" * (MAX_RAW_BYTES // 3)):
        raw = shorten_output(text, "probe")[1] or ""
        assert MAX_RAW_BYTES - 4 <= len(raw.encode()) <= MAX_RAW_BYTES
        assert raw.endswith(f"[cut here: {len(text):,} characters in all]")
        assert text.startswith(raw.split("\n")[0])
    whole = "x" * MAX_RAW_BYTES
    assert shorten_output(whole, "probe")[1] == whole


def test_the_name_of_a_tool_stays_short_and_on_one_line() -> None:
    said, _ = shorten_output("x" * 5_000, "a\nb" * 500)
    assert len(said) <= MAX_SHOWN_CHARACTERS
    assert said.startswith("a ba b")


@pytest.mark.parametrize("text", ["\n".join(LOG), json.dumps(ROWS), "A sentence of some words. " * 40_000, "[" * 10**6])
def test_a_megabyte_takes_milliseconds(text: str) -> None:
    shorten_output(text, "probe")
    took = []
    for _ in range(5):
        start = time.thread_time()
        shorten_output(text, "probe")
        took.append(time.thread_time() - start)
    # 2 to 5 ms on a quiet machine; to read all of it word by word would take 300.
    assert min(took) < 0.1
