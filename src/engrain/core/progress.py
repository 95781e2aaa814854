"""Report the progress of a long verb to its caller."""

from __future__ import annotations

from collections.abc import Callable

# Called with the stage, how much of it is done, and how much there is in all; None where nobody knows.
Progress = Callable[[str, int, int | None], None]


def count_progress(progress: Progress | None, stage: str, total: int | None = None) -> Callable[[int], None]:
    """Return a function that takes how many more are done."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(stage, done, total)

    return add


def stage_progress(progress: Progress | None) -> Callable[[str], None]:
    """Return a function that takes the name of the stage that begins."""
    count = 0

    def enter(stage: str) -> None:
        nonlocal count
        if progress is not None:
            progress(stage, count, None)
        count += 1

    return enter
