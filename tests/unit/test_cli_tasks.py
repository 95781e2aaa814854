"""`engrain tasks`: list, show, resume, resolve, park, cancel, prune, for people and for programs."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder
from examples import for_each

from engrain import LeaseLost, Memory, StepAmbiguous, TaskWaiting
from engrain.cli.main import root
from engrain.tasks.manage_tasks import Tasks

Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def memory(store: Path) -> Iterator[Memory]:
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        yield memory


@pytest.fixture
def run(store: Path, memory: Memory) -> Run:
    def call(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(root, ["--store", str(store), "--user", "ana", "tasks", *args])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


@pytest.fixture
def halted(memory: Memory) -> str:
    def send(to: str) -> None:
        raise OSError("timed out")

    with pytest.raises(StepAmbiguous), memory.task("order-42", goal="ship it", version="1") as task:  # noqa: PT012
        task.step("plan", lambda: {"parts": 2})
        task.effect("mail", send, "ana")
    return "order-42"


def test_nothing_yet(run: Run) -> None:
    assert "No task" in run().stderr
    assert run("--json").stdout == ""


def test_tasks_are_listed_and_shown_with_their_steps(run: Run, halted: str) -> None:
    assert "order-42" in run("--status", "parked").output
    assert "No such task" in run("--status", "done").stderr
    (line,) = run("--json").stdout.splitlines()
    assert json.loads(line)["status"] == "parked"
    shown = run("show", halted).output
    for part in ("✓ plan", "? mail", "timed out", f"engrain tasks resolve {halted} mail done|failed|skipped"):
        assert part in shown
    assert [step["name"] for step in json.loads(run("show", halted, "--json").stdout)["steps"]] == ["plan", "mail"]
    assert run("show", "unknown", code=1)


def test_an_ambiguous_effect_is_resolved_and_the_task_resumed(run: Run, halted: str, memory: Memory) -> None:
    assert "not JSON" in run("resolve", halted, "mail", "done", "--result", "{", code=1).output
    done = json.loads(
        run("resolve", halted, "mail", "done", "--result", '{"id": 7}', "--note", "seen", "--json").stdout
    )
    assert (done["status"], done["error"]) == ("done", "resolved by hand: seen")
    assert "settled already" in run("resolve", halted, "mail", "failed", code=1).output
    assert "waiting" in run("resume", halted).output
    with memory.task(halted, version="1") as task:
        task.step("plan", dict)
        assert task.effect("mail", print, "ana") == {"id": 7}


def test_a_hint_can_be_pasted_whatever_the_names(run: Run, memory: Memory) -> None:
    def send() -> None:
        raise OSError("timed out")

    with pytest.raises(StepAmbiguous), memory.task("Ana's order; rm") as task:
        task.effect("mail", send, key="to ana")
    (hint,) = [line for line in run("show", "Ana's order; rm").output.splitlines() if "tasks resolve" in line]
    words = shlex.split(hint.removesuffix("done|failed|skipped"))
    assert words == ["engrain", "tasks", "resolve", "Ana's order; rm", "mail[to ana]"]


def test_a_checkpoint_shows_its_state_and_nobody_who_runs_it(run: Run, memory: Memory) -> None:
    memory.tasks.checkpoint("crawl", {"page": 7, "seen": ["Zürich"]})
    for shown in (run().output, run("show", "crawl").output):
        assert "a checkpoint" in shown
        assert "running" not in shown
        assert "process" not in shown
    assert json.loads(shown.partition("\n\n")[2]) == {"page": 7, "seen": ["Zürich"]}
    memory.tasks.checkpoint("crawl", {"page": 8}, done=True)
    assert "done" in run("show", "crawl").output


def test_a_running_task_is_followed_live(run: Run, memory: Memory) -> None:
    go = threading.Event()

    def work() -> None:
        with memory.task("live") as task:
            task.step("first", lambda: 1)
            go.wait(180)
            task.step("second", lambda: 2)

    with memory.task("other"):
        pass
    worker = threading.Thread(target=work)
    worker.start()
    while not any(one.task == "live" for one in memory.tasks.list()):
        pass
    threading.Timer(0.3, go.set).start()
    shown = run("show", "live", "--follow").output
    worker.join()
    assert "✓ first" in shown
    assert "✓ second" in shown


def test_a_person_parks_and_cancels(run: Run, memory: Memory) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as task:  # noqa: PT012
        assert "wait for Ana" in run("park", "order", "--why", "wait for Ana").output
        task.step("late", lambda: 1)
    assert json.loads(run("cancel", "order", "--json").stdout)["status"] == "cancelled"
    assert "ended already" in run("park", "order", code=1).output
    assert run("prune", "--yes").output == "Removed 0 tasks.\n"
    assert json.loads(run("prune", "--yes", "--days", "0", "--json").stdout) == {"removed": 1}


def test_one_task_is_removed_by_its_name(run: Run, memory: Memory) -> None:
    for name in ("order", "other"):
        with memory.task(name):
            pass
    with suppress(RuntimeError), memory.task("parked"):
        raise RuntimeError
    assert json.loads(run("prune", "--yes", "order", "--json").stdout) == {"removed": 1}
    assert sorted(task.task for task in memory.tasks.list()) == ["other", "parked"]
    assert "no task 'order'" in run("prune", "--yes", "order", code=1).output
    assert "not ended" in run("prune", "--yes", "parked", code=1).output


def test_a_name_cannot_command_the_terminal(run: Run, memory: Memory) -> None:
    with memory.task("\x1b[31mred", goal="\x1b]0;title\x07") as task:
        task.step("\x1b(0", lambda: 1)
    for shown in (run().output, run("show", "\x1b[31mred").output):
        assert "\x1b" not in shown


@for_each("name", ["show", "resume", "resolve", "park", "cancel", "prune"])
def test_help_teaches(name: str) -> None:
    shown: Any = CliRunner().invoke(root, ["tasks", name, "--help"]).output
    assert f"engrain tasks {name}" in shown.split("Examples:")[1]
    assert "Prints:" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_running_task_is_not_resumed(run: Run, memory: Memory) -> None:
    with memory.task("order") as task:
        assert "running already" in run("resume", "order", code=1).output
        task.step("a", lambda: 1)


@pytest.mark.parametrize("days", ["-1", "nan", "inf", "1e300"])
def test_days_that_cannot_be_are_named(run: Run, days: str) -> None:
    assert "older_than" in run("prune", "--yes", "--days", days, code=1).output


def test_a_long_task_is_followed_without_reading_it_once_for_each_step(
    run: Run, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory.task("long") as task:
        for number in range(30):
            task.step("step", lambda number=number: number)
    looks: list[str] = []
    seen = Tasks.timeline
    monkeypatch.setattr(Tasks, "timeline", lambda self, name: (looks.append(name), seen(self, name))[1])
    assert run("show", "long", "--follow").output.count("✓ step") == 30
    assert len(looks) <= 3


def test_a_wait_is_shown_with_its_end(run: Run, memory: Memory) -> None:
    with pytest.raises(TaskWaiting), memory.task("order") as task:
        task.wait_event("paid", timeout=86_400, block=False)
    until = memory.tasks.timeline("order").steps[0].input
    assert f"until {until}" in run("show", "order").output


def test_an_approval_is_given_at_the_shell(run: Run, memory: Memory) -> None:
    with pytest.raises(TaskWaiting), memory.task("order-42") as task:
        task.wait_event("approved", block=False)
    done = run("signal", "order-42", "approved", "--payload", '{"by": "ana"}')
    assert (
        done.stdout == "order-42 has the event approved. It continues now if it is waiting, or at the next recover().\n"
    )
    assert json.loads(run("signal", "order-42", "approved", "--payload", "2", "--json").stdout)["new"] is False
    assert "the first one counts" in run("signal", "order-42", "approved").stdout
    found: list[object] = []
    assert [
        one.status for one in memory.tasks.recover(lambda task: found.append(task.wait_event("approved", block=False)))
    ] == ["done"]
    assert found == [{"by": "ana"}]
    assert "TaskEnded" in run("signal", "order-42", "late", "--json", code=1).stdout


def test_an_event_for_a_task_that_is_not_there_yet_is_kept_and_told(run: Run, memory: Memory) -> None:
    assert "there is no task 'order-43' yet: the event waits for it" in run("signal", "order-43", "approved").stderr
    assert "--payload is not JSON" in run("signal", "order-43", "x", "--payload", "{", code=1).stderr


def test_tasks_go_only_if_somebody_says_so(run: Run, memory: Memory) -> None:
    with memory.task("order"):
        pass
    assert "--yes" in run("prune", "--days", "0", code=1).output
    assert [one.task for one in memory.tasks.list()] == ["order"]
