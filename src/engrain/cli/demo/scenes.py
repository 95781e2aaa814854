"""Scenes about lasting: other processes, crashes, forgetting, and what it costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.demo.stage import READ, Process, Stage, prompted
from engrain.cli.output import faint
from engrain.core.clock import system_clock

if TYPE_CHECKING:
    from engrain.cli.demo.stage import Process, Stage


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
    memory = stage.names["memory"]
    unsound = [one.name for one in memory.store.doctor(memory.scope) if one.state == "fail"]
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
    items = memory.store.status().store["open_items"]
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


def erased(stage: Stage) -> None:
    before = stage.run('places("Ana")  # in the bytes of every file of the store')
    stage.run('done = memory.store.erase(user="ana")')
    done = stage.names["done"]
    stage.fact("erased", not done.pending, not done.pending)
    if done.pending:
        return
    stage.run('done.receipt.values["counts"]["item"]')
    stage.run('done.receipt.values["verified"]')
    after = stage.run('places("Ana")')
    holds = stage.run("bool(memory.store.verify_erasure(done.receipt))")
    stage.fact("places_of_the_user", [before, after], before > 0 and after == 0)
    stage.fact("receipt_holds", holds, holds is True)
    stage.verdict("Every tier, index, journal and byte: erased, looked for, and on a receipt without content.")


QUESTION = "What is her favourite programming language?"
UNKNOWN = "How tall is the Eiffel Tower?"


def remember_and_recall(stage: Stage) -> None:
    stage.run("from engrain import Memory")
    stage.run('memory = Memory("agent.db", user="ana")')
    stage.leaving.append(stage.names["memory"].close)
    stage.run('memory.remember("Ana prefers Python over JavaScript.", importance=0.8)')
    stage.run('memory.remember("The release train leaves every Tuesday at 14:00.")')
    stage.run('memory.remember("Ana\'s cat is called Miso.")')
    found = stage.run(f'print(memory.recall("{QUESTION}", n=1))')
    stage.fact("recalled", found.strip(), "Ana prefers Python" in found)
    stage.say("Found by meaning: question and answer have no word in common. Nothing left this machine.")


def not_knowing(stage: Stage) -> None:
    stage.run(f'found = memory.recall("{UNKNOWN}")')
    hits = stage.run("found.hits")
    cut = stage.run("print(*found.omitted)")
    stage.fact("unknown_hits", len(hits), not hits)
    stage.fact("unknown_omitted", cut.strip(), "below the relevance floor" in cut)
    stage.say("It would rather say nothing than something beside the point, and it says what it left out.")


def a_fact_that_changes(stage: Stage) -> None:
    for city, day in (("Lima", "2025-03-01"), ("Quito", "2026-06-01")):
        said = f'memory.remember("Ana lives in {city}.", slot="user.city",'
        stage.run(f'{said}\n                occurred_at="{day}")', silent=True)
    now = stage.run('memory.slots.get("user.city").text')
    then = stage.run('memory.slots.get("user.city", as_of="2025-12-24").text')
    found = stage.run('print(memory.recall("Where is Ana\'s home?", n=1))')
    stage.fact("city_now", now, "Quito" in now)
    stage.fact("city_then", then, "Lima" in then)
    stage.fact("recall_is_current", "Lima" not in found and "Quito" in found, "Lima" not in found and "Quito" in found)
    stage.say("A newer value closes the older one. Nothing is overwritten: as_of brings it back.")


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


TURNS = 500


@dataclass
class Calendar:
    """A clock that a scene can move."""

    days: float = 0

    def __call__(self) -> datetime:
        return system_clock() + timedelta(days=self.days)


def three_days_later(stage: Stage) -> None:
    stage.names["Calendar"] = Calendar
    stage.run("clock = Calendar()  # a clock that this demo can move", silent=True)
    stage.run('ben = Memory("ben.db", user="ben", clock=clock)')
    stage.leaving.append(stage.names["ben"].close)
    stage.run('opening = ben.start_session("monday")', silent=True)
    stage.run('ben.add_message("user", "The nightly import on heron times out.")', silent=True)
    stage.run('error = ben.episodic.record_error("The import timed out after 30 s.")', silent=True)
    stage.run('ben.episodic.record_resolution(error, "Its time-out is 120 s now.")', silent=True)
    stage.run("closing = ben.end_session()", silent=True)
    stage.run("clock.days += 3", silent=True)
    told = stage.run('print(ben.start_session("thursday"))')
    kinds = stage.run("[event.kind for event in ben.episodic.recent()]")
    stage.fact("came_back_to", told.strip(), "heron" in told and "120 s" in told)
    stage.fact("episodes_left", kinds, "turn" not in kinds and "error" in kinds)
    stage.say("The last summary and what was important are there; ordinary episodes have expired. No model was used.")


def forty_seven_sessions_later(stage: Stage) -> None:
    stage.run('ben.add_message("user", "Remember that I prefer aisle seats.")', silent=True)
    stage.run(
        "for number in range(2, 48):\n"
        "    clock.days += 1\n"
        '    opening = ben.start_session(f"session {number}")\n'
        '    id = ben.add_message("user", f"Nothing new on day {number}.")\n',
        silent=True,
    )
    stage.run("then = clock()", silent=True)
    stage.run('question = "Which seat shall I book?"', silent=True)
    found = stage.run("ben.recall(question, n=1).hits[0].text")
    stage.fact("session_47", found.strip(), "aisle" in found)
    stage.run("clock.days += 1", silent=True)
    stage.run('ben.add_message("user", "I prefer window seats now.")', silent=True)
    now = stage.run("ben.recall(question, n=1).hits[0].text")
    before = stage.run("ben.recall(question, n=1, as_of=then).hits[0].text")
    stage.fact("session_48", now.strip(), "window" in now)
    stage.fact("as_of_session_47", before.strip(), "aisle" in before)
    stage.say("Said once in passing, used in session 47, changed in session 48. The old value still answers as_of.")


def five_hundred_turns(stage: Stage) -> None:
    stage.run("from engrain import Message", silent=True)
    stage.run('opening = ben.start_session("a long day")', silent=True)
    stage.run(
        f"for turn in range(1, {TURNS + 1}):\n"
        '    said = "My locker word is marmalade." if turn == 3 else "Go on."\n'
        '    ids = ben.add_messages([Message("user", said),\n'
        '                            Message("assistant", f"{turn} is sorted.")])\n',
        silent=True,
    )
    stage.run("window = ben.conversation.window()", silent=True)
    stage.run("len(window.messages), window.tokens")
    window = stage.names["window"]
    found = stage.run('ben.recall("What is the word of my locker?", n=1).hits[0].text')
    stage.fact("window_messages", len(window.messages), len(window.messages) <= 50)
    stage.fact("window_tokens", window.tokens, window.tokens <= 10_000)
    stage.fact("turn_3_is_found", found.strip(), "marmalade" in found)
    stage.say(f"{2 * TURNS:,} messages are in the log, few of them in the window, and turn 3 is still found.")
