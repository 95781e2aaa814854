"""The settings of maintenance: checked when read, plain values, and pure rules."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain import ConfigError, InvalidInput, Memory, NewerStore, StoreCorrupt
from engrain.config import load_settings
from engrain.core import clock as leaps
from engrain.core.clock import CLOCK_CONFIRMATION, MAX_CLOCK_STEP, ClockState, clock_jumped, next_state
from engrain.core.formats.manifests import (
    BackupInfo,
    BackupManifest,
    find_surplus_backups,
    is_backup_due,
    make_backup_name,
    parse_backup_time,
    read_backup_manifest,
    write_backup_manifest,
)
from engrain.core.model.retention import DAY_SECONDS, Policies, check_policies, fade_importance

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def toml(folder: Path, text: str) -> Path:
    path = folder / "engrain.toml"
    path.write_text(f'[stores]\ndefault = "{folder / "agent.db"}"\n{text}')
    return path


def test_the_table_of_the_settings_file_is_read(tmp_path: Path) -> None:
    assert load_settings(toml(tmp_path, "")).lifecycle == Policies()
    found = load_settings(
        toml(tmp_path, "[lifecycle]\nconsolidate_below = 0\ntask_days = 2\nbackup_keep = 3\n")
    ).lifecycle
    assert found == Policies(consolidate_below=0, task_days=2, backup_keep=3)


@for_each(
    ("given", "message"),
    [
        ("consolidate = 1", "unknown key 'consolidate'"),
        ("task_days = '7'", "task_days must be a number of days, such as 7, not '7'"),
        ("backup_hours = 'daily'", "backup_hours must be a number of hours, such as 24, not 'daily'"),
        ("task_days = true", "task_days must be a number of days"),
        ("task_days = -1", "must be from 0"),
        ("task_days = nan", "must be from 0"),
        ("backup_keep = 1.5", "backup_keep must be a whole number"),
        ("backup_keep = 0", "at least 1"),
        ("backup_hours = 0", "backup_hours must be more than 0"),
        ("backup_keep = 10_000_000", "backup_keep is too many for one every 24 hours"),
        ("consolidate_below = 2", "from 0 to 1"),
        ("drop_old_vectors = 1", "drop_old_vectors must be true or false"),
        ("mirror = 1", "mirror must be a text in quotes"),
        ("mirror = 'files/{name}'", "mirror may have {user}, {agent}, {tenant} in it, not {name}"),
        ("mirror = 'files/{user'", "mirror may have {user}, {agent}, {tenant} in it, and no other braces"),
        ("mirror = 'files/{user!r}'", "no other braces"),
        ('mirror = "a\\u0000b"', "is not a path"),
        ('backup_folder = "a\\u0000b"', "is not a path"),
        ("task_days = 1_000_000", "task_days must be from 0 to 100,000, not 1000000"),
        ("every_minutes = 1e9", "every_minutes must be from 0 to 144,000,000"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(tmp_path: Path, given: str, message: str) -> None:
    with pytest.raises((ConfigError, InvalidInput), match=message):
        load_settings(toml(tmp_path, f"[lifecycle]\n{given}\n"))


@pytest.mark.parametrize("given", [5, "x", [("task_days", 1)]])
def test_what_is_no_table_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"\[lifecycle\] must have names and values"):
        Memory(tmp_path / "a.db", embedder=HashEmbedder(), settings={"lifecycle": given})


@pytest.mark.parametrize(
    "name", [one.name for one in fields(Policies) if one.name.endswith(("days", "hours", "minutes"))]
)
def test_the_longest_times_can_be_used(tmp_path: Path, name: str) -> None:
    most = {"days": 100_000, "hours": 2_400_000, "minutes": 144_000_000}[name.rpartition("_")[2]]
    rules = {"backup_folder": tmp_path / "backups", "backup_keep": 1, name: most / 2}
    with Memory(
        tmp_path / "a.db", user="ana", embedder=HashEmbedder(), background=False, settings={"lifecycle": rules}
    ) as memory:
        memory.remember("Ana likes tea.", importance=0.1)
        for _ in range(2):
            assert memory.store.maintain(memory.scope).problems == ()
        assert memory.store.erase(user="ana", dry_run=False).receipt is not None
        memory.store.workers.scheduler._enabled = True
        memory.store.workers.scheduler.once()
    with pytest.raises(ConfigError, match=name):
        check_policies({name: most * 1.01})


def test_a_program_gives_the_same_values(tmp_path: Path) -> None:
    assert check_policies({"mirror": tmp_path}).mirror == str(tmp_path)
    with pytest.raises(InvalidInput, match="unknown key 'x'"):
        Memory(tmp_path / "a.db", embedder=HashEmbedder(), settings={"lifecycle": {"x": 1}})
    assert check_policies({"every_minutes": 5}).every_minutes == 5


def test_what_is_not_used_fades_and_never_grows() -> None:
    assert fade_importance(0.8, 100 * DAY_SECONDS, 0, 0) == 0.8
    assert fade_importance(0.8, 30 * DAY_SECONDS, 0, 30) == pytest.approx(0.4)
    assert fade_importance(0.8, 30 * DAY_SECONDS, 2, 30) > 0.4


@given(st.floats(0, 1), st.floats(-DAY_SECONDS, 1e9), st.integers(0, 99), st.floats(0.01, 1e4))
def test_importance_stays_within_its_bounds(importance: float, unused: float, uses: int, half_life: float) -> None:
    left = fade_importance(importance, unused, uses, half_life)
    assert 0 <= left <= importance
    assert fade_importance(importance, unused + DAY_SECONDS, uses, half_life) <= left
    assert fade_importance(importance, unused, uses + 1, half_life) >= left


def test_why_says_what_is_left_of_an_importance(tmp_path: Path) -> None:
    clock = SetClock()
    rules = {"half_life_days": 10}
    with Memory(
        tmp_path / "a.db", clock=clock, embedder=HashEmbedder(), settings={"lifecycle": rules}, background=False
    ) as memory:
        fading, pinned = memory.remember("Ana wore a hat.", importance=0.4), memory.remember("Ana is a pilot.")
        memory.update(pinned, pinned=True)
        clock.advance(10 * DAY_SECONDS)
        assert "importance 0.40, 0.20 left of it, used 0 times" in str(memory.explain(fading))
        assert "importance 0.50, 0.50 left of it, used 0 times, pinned" in str(memory.explain(pinned))
        assert [one.id for one in memory.store.maintain(memory.scope, dry_run=True).each] == [fading]
    with Memory(tmp_path / "a.db", clock=clock, embedder=HashEmbedder(), background=False) as memory:
        assert "left of it" not in str(memory.explain(fading))
        assert memory.store.maintain(memory.scope, dry_run=True).each == ()


# A clock that is wrong


def test_half_a_year_is_not_believed_at_once() -> None:
    year, hour = timedelta(days=365), timedelta(hours=1)
    assert not clock_jumped(ClockState(), NOW), "nothing is known"
    assert not clock_jumped(ClockState(NOW), NOW + MAX_CLOCK_STEP)
    assert not clock_jumped(ClockState(NOW), NOW - 9 * year)
    assert clock_jumped(ClockState(NOW), NOW + year)
    known = next_state(ClockState(NOW), NOW + year)
    assert known == ClockState(NOW, NOW + year)
    assert clock_jumped(known, NOW + year + hour)
    assert next_state(known, NOW + year + hour) == known
    assert not clock_jumped(known, NOW + year + CLOCK_CONFIRMATION), "it goes on saying so"
    assert next_state(known, NOW + year + CLOCK_CONFIRMATION) == ClockState(NOW + year + CLOCK_CONFIRMATION)
    assert next_state(known, NOW + hour) == ClockState(NOW + hour), "it was wrong, and is right again"
    assert clock_jumped(known, NOW + 9 * year), "another leap"
    assert clock_jumped(next_state(known, NOW + 9 * year), NOW + 9 * year)


@given(st.lists(st.integers(-(10**9), 10**9), max_size=9))
def test_one_reading_of_a_clock_is_never_believed_if_it_is_far_ahead(seconds: list[int]) -> None:
    known = ClockState(NOW)
    for one in seconds:
        at = NOW + timedelta(seconds=one)
        before, known = known, next_state(known, at)
        assert not (clock_jumped(before, at) and known.last != before.last)
        assert leaps.read_clock_state(leaps.write_clock_state(known)) == known
    assert clock_jumped(ClockState(NOW), NOW + 2 * MAX_CLOCK_STEP)


@for_each("text", [None, "", "x", "[]", "{}", "3", '{"last": 3, "since": null}', '{"last": "x"}', "[" * 100_000])
def test_what_is_no_record_of_the_clock_says_nothing(text: str | None) -> None:
    assert leaps.read_clock_state(text) == ClockState()


# Backups


def test_a_backups_name_tells_its_moment() -> None:
    name = make_backup_name("agent", NOW)
    assert parse_backup_time("agent", name) == NOW
    for other in ("agent.db", "agent-notes.db", f"{name}.json", f"x{name}", "agent-20269999T000000000000Z.db"):
        assert parse_backup_time("agent", other) is None
    assert parse_backup_time("age", name) is None


def test_the_newest_backups_stay_and_nothing_else_goes() -> None:
    ours = [make_backup_name("agent", NOW + timedelta(days=n)) for n in range(5)]
    others = ["agent-old.db", "other-20260501T120000000000Z.db", "notes.txt"]
    latest = NOW + timedelta(days=5)
    assert find_surplus_backups("agent", [*reversed(ours), *others], 2, latest) == ours[:3]
    assert find_surplus_backups("agent", [*ours, *others], 9, latest) == []


def test_a_backup_of_a_wrong_clock_does_not_outlive_the_right_ones() -> None:
    wrong, *right = (make_backup_name("agent", NOW + timedelta(days=days)) for days in (9_999, 0, 1, 2))
    assert find_surplus_backups("agent", [*right, wrong], 1, NOW + timedelta(days=3)) == [wrong, *right[:2]]


def test_a_backup_is_due_after_its_time() -> None:
    hour = timedelta(hours=1)
    assert is_backup_due([], NOW, hour)
    assert is_backup_due([NOW - hour, NOW - 2 * hour], NOW, hour)
    assert not is_backup_due([NOW - hour + timedelta(microseconds=1)], NOW, hour)
    assert not is_backup_due([NOW + hour], NOW, hour), "after a clock was set back"
    assert is_backup_due([NOW + timedelta(days=9_999)], NOW, hour), "a clock was wrong once, and backups go on"


MANIFEST = BackupManifest(NOW, 4, 7, 100, "ab" * 32, True, "1.0", {"item": 7})


def test_a_manifest_comes_back_as_it_was() -> None:
    assert read_backup_manifest(write_backup_manifest(MANIFEST), "m") == MANIFEST


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_anything_else_is_no_manifest(raw: bytes) -> None:
    with pytest.raises((StoreCorrupt, NewerStore)):
        read_backup_manifest(raw, "m")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda some: st.lists(some), max_leaves=4))
def test_a_manifest_with_odd_values_is_refused_or_read(value: Any) -> None:
    import json

    for name in json.loads(write_backup_manifest(MANIFEST)):
        try:
            found = read_backup_manifest(
                json.dumps({**json.loads(write_backup_manifest(MANIFEST)), name: value}).encode(), "m"
            )
        except (StoreCorrupt, NewerStore):
            continue
        assert isinstance(found.schema, int), "it can be compared with the schemas that are known"
        assert str(BackupInfo("b.db", found))
