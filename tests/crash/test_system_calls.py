"""SIGKILL at every system call that changes a file: nothing acknowledged is lost, and the store opens clean."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from counting import choose_points
from tracing import CALLS, Traced, needs_tracing, run_traced
from writing import assert_kept, few

CHANGING = [name for name in CALLS if name not in ("openat", "fcntl")]

pytestmark = needs_tracing


def _write_few(folder: Path, fatal: int | None = None) -> Traced:
    folder.mkdir()
    return run_traced(partial(few, folder / "store.db", folder / "notes"), fatal, CHANGING)


@pytest.mark.parametrize("points", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_killed_at_a_system_call(tmp_path: Path, points: int | None, report_counts: Callable[..., None]) -> None:
    whole = _write_few(tmp_path / "whole")
    assert whole.status == 0
    few_of = [1 + (whole.calls - 1) * n // points for n in range(1, points + 1)] if points else []
    chosen = few_of or choose_points(range(1, whole.calls + 1))
    for number in chosen:
        folder = tmp_path / str(number)
        assert _write_few(folder, number).killed, number
        assert_kept(folder / "store.db", folder / "notes")
        shutil.rmtree(folder)
    report_counts(kills=len(chosen), of=whole.calls)
