"""The command `engrain demo`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.demo import scenes
from engrain.cli.demo.stage import Stage
from engrain.cli.output import faint, strong

SCENES: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("Remember, and recall. No key, no server, no download.", scenes.remember_and_recall),
    ("A question it cannot answer.", scenes.not_knowing),
    ("A fact that changes.", scenes.a_fact_that_changes),
    ("The user who comes back after three days.", scenes.three_days_later),
    ("A preference of session 1, in session 47.", scenes.forty_seven_sessions_later),
    ("A conversation of five hundred turns.", scenes.five_hundred_turns),
    ("A second process.", scenes.a_second_process),
    ("A process that is killed while it writes.", scenes.a_killed_writer),
    ("A long task whose process is killed.", scenes.a_long_task),
    ("Forgetting, down to the bytes.", scenes.forgetting),
    ("What it costs.", scenes.what_it_costs),
    ("The user who wants to be erased, and a receipt for it.", scenes.erased),
)


def play(stage: Stage) -> None:
    try:
        scenes.prepare(stage)
        for number, (title, scene) in enumerate(SCENES, 1):
            stage.title(number, title)
            scene(stage)
            stage.pause()
    finally:
        stage.leave()


NEXT = (
    ('engrain remember "Ana likes tea."', "your own memory, in engrain.db"),
    ('engrain recall "What does Ana drink?"', "find it again, from any process"),
    ("engrain --help", "every command"),
)


@verb(
    "demo",
    examples=("engrain demo", "engrain demo --fast", "engrain demo --json"),
    prints="Each scene: the line of Python that runs, and what it gave. With --json, the facts measured.",
)
@click.option("--fast", is_flag=True, help="Without the pauses.")
def demo(cli: Session, fast: bool) -> None:
    """See it work: half a minute, nothing to set up.

    It runs the real verbs on a temporary store, which is removed at the end. Your own memory is not touched.
    """
    began = time.perf_counter()
    with TemporaryDirectory(prefix="engrain-demo-") as folder, chdir(folder):
        stage = Stage(Path(folder), fast=fast, quiet=cli.json)
        stage.show(f"{strong('engrain')}: a memory for AI agents that stays.")
        stage.show(faint("Every line below is run as you read it, on a temporary store."))
        play(stage)
    facts = {"ok": not stage.broken, "broken": stage.broken, "facts": stage.facts}
    cli.answer({**facts, "seconds": round(time.perf_counter() - began, 2)}, lambda: _next_steps(stage))
    if stage.broken:
        click.get_current_context().exit(1)


def _next_steps(stage: Stage) -> Iterator[str]:
    yield ""
    yield strong("Next")
    for command, meaning in NEXT:
        yield f"   {click.style(command.ljust(40), fg='cyan')}{faint(meaning)}"
    yield ""
