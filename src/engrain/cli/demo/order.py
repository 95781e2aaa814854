"""A scene about a long task: killed in step 18 of 25, it goes on at step 18, and the mail is sent once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.shown import faint

if TYPE_CHECKING:
    from engrain.cli.demo.process import Process
    from engrain.cli.demo.stage import Stage

KILLED_IN, STEPS = 18, 25
OUTBOX = "outbox.txt"
SHIP = f"""def ship(run):
    run.effect("mail", send_mail, "ana@example.com")
    for n in range(1, {STEPS + 1}):
        run.step(f"step {{n}}", work, n)
"""
START = 'with memory.task("order-42", goal="ship it") as run: ship(run)'


def names(tell: Callable[[str], object], stuck: bool) -> dict[str, Any]:
    """What `ship` calls. A stuck worker stays in the step in which it is to be killed."""

    def send_mail(to: str) -> None:
        with Path(OUTBOX).open("a") as outbox:
            outbox.write(f"to {to}\n")

    def work(n: int) -> None:
        tell(str(n))
        if stuck and n == KILLED_IN:
            time.sleep(60)

    return {"send_mail": send_mail, "work": work}


def a_long_task(stage: Stage) -> None:
    worker: Process = stage.names["worker"]
    _show(stage, SHIP)
    stage.show(f"   {faint(f'process {worker.pid}')}")
    _show(stage, START)
    worker.send(SHIP)
    worker.answered()
    worker.send(START)
    while worker.acknowledged() != str(KILLED_IN):
        pass
    killed = click.style(f"kill -9 {worker.pid}", fg="cyan")
    stage.show(f"   {faint('$')} {killed}  {faint(f'# it is in step {KILLED_IN}')}")
    worker.kill()
    _again(stage)


def _again(stage: Stage) -> None:
    worked: list[int] = []
    stage.names.update(names(lambda n: worked.append(int(n)), stuck=False), worked=worked)
    stage.names["mails"] = lambda: Path(OUTBOX).read_text().count("\n")
    exec(compile(SHIP, "<demo>", "exec"), stage.names)
    stage.run(START, silent=True)
    went_on = stage.run("worked  # the steps that ran now")
    sent = stage.run("mails()  # in the outbox")
    stage.fact("task_went_on_at", went_on[0], went_on == list(range(KILLED_IN, STEPS + 1)))
    stage.fact("mails_sent", sent, sent == 1)
    Path(OUTBOX).unlink()
    stage.verdict(f"Killed in step {KILLED_IN} of {STEPS}: it went on at {went_on[0]}, and the mail was sent once.")


def _show(stage: Stage, code: str) -> None:
    for number, text in enumerate(code.rstrip().splitlines()):
        stage.show(f"   {faint('...' if number else '>>>')} {click.style(text, fg='cyan')}")
    stage.pause()
