"""An agent is killed at any point: it goes on, pays for no recorded reply twice, and the log tells of no kill."""

# ruff: noqa: PT017  (what is reported is looked at where it is caught)

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_program import SAID, STEPS, TASK, Service, open_memory, play, run
from counting import choose_points
from forked import fork_child, wait_for_child
from task_classes import Outside

from engrain import Memory, StepAmbiguous

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)


# The two tools of a turn run at once. If their records share a commit, a run has fewer points: one that is missed is
# tried again.
RUNS, TRIES = 4, 60


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path)
    with service.running():
        yield service


def killed(path: Path, service: Service, kind: str, fatal: int | None) -> int:
    """The number of points the child met; 0 if it was killed."""
    note = path.with_suffix(".points")
    ended = wait_for_child(fork_child(lambda: note.write_text(str(play(path, service, kind, fatal)))))
    assert ended in (0, -signal.SIGKILL)
    return 0 if ended else int(note.read_text())


def copied(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return Path(shutil.copy(folder / "store.db", folder / name / "store.db"))


def conversation(memory: Memory) -> list[Any]:
    rows = memory.session("s").conversation.last(100)
    return [(one.role, one.text, [(c.name, c.arguments) for c in one.calls], one.failed) for one in rows]


def kept(memory: Memory) -> list[str]:
    return sorted(item.text for item in memory.list({"kind": {"!=": "message"}}))


def continued(path: Path, service: Service, kind: str) -> str:
    """A second worker, at once. An effect that may or may not have happened is reported, and resolved by looking."""
    outside = Outside(path.with_suffix(".out"))
    fate = "continued"
    with open_memory(path) as memory:
        steps = memory.tasks.timeline(TASK).steps if memory.tasks.list() else ()
        done = Counter(one.name.partition("[")[0] for one in steps if one.status == "done")
        looks, asked = outside.lines().count("look 7"), service.requests
        for _ in range(2):
            try:
                run(memory, service.model(kind), outside)
                break
            except StepAmbiguous as halted:
                assert halted.step == "mail[2.1]"
                fate = "reported"
                sent = "mail ana" in outside.lines()
                memory.tasks.resolve(
                    TASK, halted.step, "done" if sent else "failed", result="mail ana" if sent else None
                )
        assert service.requests - asked == STEPS - done["model"], "a recorded reply was paid for again"
        if any(one.name == "look[1.1]" and one.status == "done" for one in steps):
            assert outside.lines().count("look 7") == looks, "a recorded call was made again"
        assert outside.lines().count("mail ana") == 1, "an effect was repeated or lost"
        assert memory.tasks.list()[0].status == "done"
        assert [one for one in memory.store.doctor(memory.scope) if one.state == "fail"] == []
    return fate


def unkilled(tmp_path: Path, service: Service, kind: str, number: int) -> tuple[int, list[Any], list[str]]:
    path = copied(tmp_path, f"whole {number}")
    points = killed(path, service, kind, None)
    with open_memory(path) as memory:
        return points, conversation(memory), kept(memory)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("anthropic", 0.02),
        pytest.param("anthropic", 1.0, marks=pytest.mark.slow),
        pytest.param("openai", 1.0, marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_any_point_is_not_to_be_seen_in_the_end(
    tmp_path: Path, service: Service, kind: str, share: float, report_counts: Callable[..., None]
) -> None:
    with open_memory(tmp_path / "store.db"):
        pass  # so that the points lie in the turn, and not in the making of the file
    runs = [unkilled(tmp_path, service, kind, number) for number in range(RUNS)]
    points, said, facts = max(runs) if share == 1.0 else min(runs)
    assert [role for role, *_ in said] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert said[0][1] == SAID
    assert len(facts) == 1
    assert points > 50
    chosen = sorted(random.Random(kind).sample(range(1, points + 1), max(4, round(points * share))))
    chosen = choose_points(chosen)
    fates: Counter[str] = Counter()
    for point in chosen:
        paths = (copied(tmp_path, f"{point} {number}") for number in range(TRIES))
        path = next((one for one in paths if not killed(one, service, kind, point)), None)
        assert path, "the point was not met"
        fates[continued(path, service, kind)] += 1
        with open_memory(path) as memory:
            assert (conversation(memory), kept(memory)) == (said, facts), point
    report_counts(kills=len(chosen), of=points, **fates)
    if share == 1.0:
        assert fates["reported"] > 0, "no kill fell between intent and result: nothing was measured"
