"""Scenes about lasting: other processes, crashes, forgetting, and what it costs."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import click

from engrain.cli.demo.process import Process
from engrain.cli.demo.stage import READ, Stage, prompted
from engrain.cli.shown import faint

KILLED_AFTER = 0.7  # seconds of writing
LEAST = 20  # writes, however slow the disk is
SECRET = "Ana's door code is 4417-kestrel."
ROUNDS = 40


def prepare(stage: Stage) -> None:
    """Start the other processes early, while the first scenes play, so that nobody waits for Python to start."""
    for name in ("reader", "writer", "worker"):
        stage.names[name] = process = Process(str(stage.folder / "agent.db"), "ana")
        stage.leaving.append(process.close)


def a_second_process(stage: Stage) -> None:
    reader: Process = stage.names["reader"]
    stage.run('memory.remember("The staging database moved to port 6432.")', silent=True)
    seen = _elsewhere(stage, reader, 'print(memory.recall("On which port is staging?", n=1))')
    stage.fact("second_process_recalled", seen, "6432" in seen)
    stage.say("What one process has written, every other process finds at once.")


def a_killed_writer(stage: Stage) -> None:
    writer: Process = stage.names["writer"]
    code = 'for n in count(1):\n    acknowledge(memory.remember(f"Parcel {n} was scanned."))'
    stage.show(_prompt(writer, code))
    writer.send(code)
    acknowledged, end = [writer.acknowledged()], time.monotonic() + KILLED_AFTER
    while len(acknowledged) < LEAST or time.monotonic() < end:
        acknowledged.append(writer.acknowledged())
    stage.show(f"   {faint('$')} {click.style(f'kill -9 {writer.pid}', fg='cyan')}")
    acknowledged += writer.kill()
    stage.pause(READ)
    stage.names["acknowledged"] = acknowledged
    told = stage.run("len(acknowledged)")
    there = stage.run("sum(memory.get(id) is not None for id in acknowledged)")
    stage.fact("acknowledged", told, told >= LEAST)
    lost = stage.fact("lost", told - there, told == there)
    unsound = [one.name for one in stage.names["memory"].check() if one.state == "fail"]
    stage.fact("failed_checks", unsound, not unsound)
    sound = "the store is sound" if not unsound else f"failed checks: {', '.join(unsound)}"
    stage.verdict(f"Killed while it wrote: {told} writes acknowledged, {lost} lost, {sound}.")


def forgetting(stage: Stage) -> None:
    stage.names["places"] = lambda text: sum(file.read_bytes().count(text.encode()) for file in Path().iterdir())
    stage.run(f'secret = memory.remember("{SECRET}")')
    before = stage.run('places("4417-kestrel")  # in the bytes of every file of the store')
    gone = stage.run("memory.forget(secret)")
    after = stage.run('places("4417-kestrel")')
    stage.fact("places_before", before, before > 0)
    stage.fact("places_after", after, after == 0 and not gone.pending)
    files = ", ".join(sorted(file.name for file in Path().iterdir()))
    stage.fact("files_scanned", files)
    stage.say(f"Forgotten means gone: the text is in none of {files}.")


def what_it_costs(stage: Stage) -> None:
    memory = stage.names["memory"]
    write = _median_ms([lambda n=n: memory.remember(f"Sensor {n} reads {n * 7 % 40} degrees.") for n in range(ROUNDS)])
    recall = _median_ms([lambda n=n: memory.recall(f"What does sensor {n} read?") for n in range(ROUNDS)])
    items = memory.status().store["open_items"]
    stage.fact("write_ms", round(write, 2))
    stage.fact("recall_ms", round(recall, 2))
    stage.fact("items", items)
    stage.show(f"   one durable write   {write:6.1f} ms   {faint('embedded, indexed, on disk')}")
    stage.show(f"   one recall          {recall:6.1f} ms   {faint(f'meaning and words, over {items} items')}")
    stage.say(f"The median of {ROUNDS} each, measured just now on this machine.")


def _elsewhere(stage: Stage, process: Process, code: str) -> str:
    stage.show(_prompt(process, code))
    shown = process.ask(code)
    stage.result(shown)
    stage.pause(READ)
    return shown


def _prompt(process: Process, code: str) -> str:
    return f"   {faint(f'in process {process.pid}:')}\n{prompted(code)}"


def _median_ms(calls: list[object]) -> float:
    taken = []
    for call in calls:
        start = time.perf_counter()
        call()  # type: ignore[operator]
        taken.append(1000 * (time.perf_counter() - start))
    return statistics.median(taken)
