"""The command `engrain demo`: scenes that run the real verbs on a temporary store."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from engrain.cli.command import memory_command
from engrain.cli.commands.ui import check_installed, show_page
from engrain.cli.context import CommandContext
from engrain.cli.demo_stage import READ_SECONDS, Process, Stage, format_code
from engrain.cli.output import bold, dim
from engrain.core.clock import system_clock
from engrain.core.errors import StepAmbiguous
from engrain.core.identity import Scope
from engrain.memory import Store

WRITING_SECONDS = 0.7  # before the writer is killed
MIN_WRITES = 20  # however slow the disk is
SECRET = "Ana's door code is 4417-kestrel."
ROUNDS = 40
QUESTION = "What is her favourite programming language?"
UNKNOWN = "How tall is the Eiffel Tower?"
KILLED_IN_STEP, STEPS = 18, 25
OUTBOX = "outbox.txt"
SHIP = f"""def ship(run):
    run.effect("mail", send_mail, "ana@example.com")
    for n in range(1, {STEPS + 1}):
        run.step(f"step {{n}}", work, n)
"""
START = 'with memory.task("order-42", goal="ship it") as run: ship(run)'
TURNS = 500
Scenes = tuple[tuple[str, Callable[[Stage], None]], ...]
RELATIONS = (
    ("Ana", "works at", "Acme"),
    ("Ben", "works at", "Acme"),
    ("Ben", "manages", "Ana"),
    ("Miso", "belongs to", "Ana"),
    ("Acme", "is based in", "Quito"),
)
TALK = (
    ("user", "I moved to Cuenca. From now on answer in Spanish."),
    ("assistant", "Claro, desde ahora en español."),
    ("user", "Remember that I prefer aisle seats."),
)
NEXT = (
    ('engrain remember "Ana likes tea."', "your own memory, in engrain.db"),
    ('engrain recall "What does Ana drink?"', "find it again, from any process"),
    ("engrain --help", "every command"),
)


@memory_command(
    "demo",
    examples=("engrain demo", "engrain demo --fast", "engrain demo --ui", "engrain demo --json"),
    prints="The Python code of each scene, and its output. With --json, the measured facts.",
)
@click.option("--fast", is_flag=True, help="Do not pause.")
@click.option("--ui", is_flag=True, help="Then look into the demo's memory in the browser.")
def demo(cli: CommandContext, fast: bool, ui: bool) -> None:
    """See it work: half a minute, nothing to set up.

    The demo runs on a temporary store, which is removed at the end. Your own memory is not touched.
    """
    if ui:
        check_installed()
    start = time.perf_counter()
    with TemporaryDirectory(prefix="engrain-demo-") as folder, chdir(folder):
        stage = Stage(Path(folder), fast=fast, quiet=cli.json)
        stage.show(f"{bold('engrain')}: a memory for AI agents that stays.")
        stage.show(dim("Every line below runs as you read it, on a temporary store."))
        _play(stage, PAGE_SCENES if ui else SCENES)
        if ui:
            with Store("agent.db") as store:
                show_page(replace(cli, store="agent.db"), store, Scope(user="ana"))
    facts = {"ok": not stage.broken, "broken": stage.broken, "facts": stage.facts}
    cli.print_result({**facts, "seconds": round(time.perf_counter() - start, 2)}, _next_steps)
    if stage.broken:
        click.get_current_context().exit(1)


def _next_steps() -> Iterator[str]:
    yield ""
    yield bold("Next")
    for command, meaning in NEXT:
        yield f"   {click.style(command.ljust(40), fg='cyan')}{dim(meaning)}"
    yield ""


def _play(stage: Stage, scenes: Scenes) -> None:
    try:
        # The other processes start early, so that no scene waits for Python to start.
        for name in ("reader", "writer", "worker"):
            stage.names[name] = process = Process(str(stage.folder / "agent.db"), "ana")
            stage.on_close.append(process.close)
        for number, (title, scene) in enumerate(scenes, 1):
            stage.title(number, title)
            scene(stage)
            stage.pause()
    finally:
        stage.close()


def remember_and_recall(stage: Stage) -> None:
    stage.run("from engrain import Memory")
    stage.run('memory = Memory("agent.db", user="ana")')
    stage.on_close.append(stage.names["memory"].close)
    stage.run('memory.remember("Ana prefers Python over JavaScript.", importance=0.8)')
    stage.run('memory.remember("The release train leaves every Tuesday at 14:00.")')
    stage.run('memory.remember("Ana\'s cat is called Miso.")')
    found = stage.run(f'print(memory.recall("{QUESTION}", n=1))')
    stage.fact("recalled", found.strip(), "Ana prefers Python" in found)
    stage.say("Found by meaning: question and answer have no word in common. Nothing left this machine.")


def ask_the_unknown(stage: Stage) -> None:
    stage.run(f'found = memory.recall("{UNKNOWN}")')
    hits = stage.run("found.hits")
    cut = stage.run("print(*found.omitted)")
    stage.fact("unknown_hits", len(hits), not hits)
    stage.fact("unknown_omitted", cut.strip(), "below the relevance floor" in cut)
    stage.say("It returns nothing rather than something irrelevant, and it says what it omitted.")


def change_a_fact(stage: Stage) -> None:
    for city, day in (("Lima", "2025-03-01"), ("Quito", "2026-06-01")):
        said = f'memory.remember("Ana lives in {city}.", slot="user.city",'
        stage.run(f'{said}\n                occurred_at="{day}")', silent=True)
    now = stage.run('memory.slots.get("user.city").text')
    then = stage.run('memory.slots.get("user.city", as_of="2025-12-24").text')
    found = stage.run('print(memory.recall("Where is Ana\'s home?", n=1))')
    stage.fact("city_now", now, "Quito" in now)
    stage.fact("city_then", then, "Lima" in then)
    stage.fact("recall_is_current", "Lima" not in found and "Quito" in found, "Lima" not in found and "Quito" in found)
    stage.say("A newer value replaces the older one. Nothing is overwritten: as_of still finds it.")


@dataclass
class Calendar:
    """A clock that a scene can set forward."""

    days: float = 0

    def __call__(self) -> datetime:
        return system_clock() + timedelta(days=self.days)


def return_after_three_days(stage: Stage) -> None:
    stage.names["Calendar"] = Calendar
    stage.run("clock = Calendar()  # a clock that this demo can move", silent=True)
    stage.run('ben = Memory("ben.db", user="ben", clock=clock)')
    stage.on_close.append(stage.names["ben"].close)
    stage.run('opening = ben.start_session("monday")', silent=True)
    stage.run('ben.add_message("user", "The nightly import on heron times out.")', silent=True)
    stage.run('error = ben.episodic.record_error("The import timed out after 30 s.")', silent=True)
    stage.run('ben.episodic.record_resolution(error, "Its time-out is 120 s now.")', silent=True)
    stage.run("closing = ben.end_session()", silent=True)
    stage.run("clock.days += 3", silent=True)
    opening = stage.run('print(ben.start_session("thursday"))')
    kinds = stage.run("[event.kind for event in ben.episodic.recent()]")
    stage.fact("came_back_to", opening.strip(), "heron" in opening and "120 s" in opening)
    stage.fact("episodes_left", kinds, "turn" not in kinds and "error" in kinds)
    stage.say("The last summary and the important events are kept; ordinary episodes have expired. No model was used.")


def recall_after_47_sessions(stage: Stage) -> None:
    stage.run('ben.add_message("user", "Remember that I prefer aisle seats.")', silent=True)
    stage.run(
        "for number in range(2, 48):\n"
        "    clock.days += 1\n"
        '    opening = ben.start_session(f"session {number}")\n'
        '    kept = ben.add_message("user", f"Nothing new on day {number}.")\n',
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
    stage.say("Said once, used in session 47, changed in session 48. as_of still finds the old value.")


def talk_500_turns(stage: Stage) -> None:
    stage.run("from engrain import Message", silent=True)
    stage.run('opening = ben.start_session("a long day")', silent=True)
    stage.run(
        f"for turn in range(1, {TURNS + 1}):\n"
        '    said = "My locker word is marmalade." if turn == 3 else "Go on."\n'
        '    kept = ben.add_messages([Message("user", said),\n'
        '                             Message("assistant", f"{turn} is sorted.")])\n',
        silent=True,
    )
    stage.run("window = ben.conversation.window()", silent=True)
    stage.run("len(window.messages), window.tokens")
    window = stage.names["window"]
    found = stage.run('ben.recall("What is the word of my locker?", n=1).hits[0].text')
    stage.fact("window_messages", len(window.messages), len(window.messages) <= 50)
    stage.fact("window_tokens", window.tokens, window.tokens <= 10_000)
    stage.fact("turn_3_is_found", found.strip(), "marmalade" in found)
    stage.say(f"{2 * TURNS:,} messages are in the log, few are in the window, and turn 3 is still found.")


def read_in_second_process(stage: Stage) -> None:
    reader: Process = stage.names["reader"]
    stage.run('memory.remember("The staging database moved to port 6432.")', silent=True)
    code = 'print(memory.recall("On which port is staging?", n=1))'
    stage.show(f"   {dim(f'in process {reader.pid}:')}\n{format_code(code)}")
    reader.send(code)
    stage.result(seen := reader.read())
    stage.pause(READ_SECONDS)
    stage.fact("second_process_recalled", seen, "6432" in seen)
    stage.say("Every process finds at once what another has written.")


def kill_writer(stage: Stage) -> None:
    writer: Process = stage.names["writer"]
    code = 'for n in count(1):\n    acknowledge(memory.remember(f"Parcel {n} was scanned."))'
    stage.show(f"   {dim(f'in process {writer.pid}:')}\n{format_code(code)}")
    writer.send(code)
    acknowledged, end = [writer.read()], time.monotonic() + WRITING_SECONDS
    while len(acknowledged) < MIN_WRITES or time.monotonic() < end:
        acknowledged.append(writer.read())
    stage.show(f"   {dim('$')} {click.style(f'kill -9 {writer.pid}', fg='cyan')}")
    acknowledged += writer.kill()
    stage.pause(READ_SECONDS)
    stage.names["acknowledged"] = acknowledged
    written = stage.run("len(acknowledged)")
    stored = stage.run("sum(memory.get(id) is not None for id in acknowledged)")
    stage.fact("acknowledged", written, written >= MIN_WRITES)
    lost = stage.fact("lost", written - stored, written == stored)
    memory = stage.names["memory"]
    failed = [check.name for check in memory.store.doctor(memory.scope) if check.state == "fail"]
    stage.fact("failed_checks", failed, not failed)
    health = f"failed checks: {', '.join(failed)}" if failed else "the store is intact"
    stage.verdict(f"Killed while it wrote: {written} writes acknowledged, {lost} lost, {health}.")


def kill_task_worker(stage: Stage) -> None:
    worker: Process = stage.names["worker"]
    stage.show(format_code(SHIP))
    stage.show(f"   {dim(f'process {worker.pid}')}\n{format_code(START)}")
    stage.pause()
    worker.send(SHIP)
    worker.read()
    worker.send(START)
    while worker.read() != str(KILLED_IN_STEP):
        pass
    killed = click.style(f"kill -9 {worker.pid}", fg="cyan")
    stage.show(f"   {dim('$')} {killed}  {dim(f'# it is in step {KILLED_IN_STEP}')}")
    worker.kill()
    _resume_task(stage)


def make_task_functions(report: Callable[[str], object], stuck: bool) -> dict[str, Any]:
    """The functions that `ship` calls. A stuck worker stays in the step in which it will be killed."""

    def send_mail(to: str) -> None:
        with Path(OUTBOX).open("a") as outbox:
            outbox.write(f"to {to}\n")

    def work(n: int) -> None:
        report(str(n))
        if stuck and n == KILLED_IN_STEP:
            time.sleep(60)

    return {"send_mail": send_mail, "work": work}


def _resume_task(stage: Stage) -> None:
    worked: list[int] = []
    stage.names.update(make_task_functions(lambda n: worked.append(int(n)), stuck=False), worked=worked)
    stage.names["mails"] = lambda: Path(OUTBOX).read_text().count("\n")
    exec(compile(SHIP, "<demo>", "exec"), stage.names)
    stage.run(START, silent=True)
    continued = stage.run("worked  # the steps that ran now")
    sent = stage.run("mails()  # in the outbox")
    stage.fact("task_continued_at", continued[0], continued == list(range(KILLED_IN_STEP, STEPS + 1)))
    stage.fact("mails_sent", sent, sent == 1)
    Path(OUTBOX).unlink()
    stage.verdict(
        f"Killed in step {KILLED_IN_STEP} of {STEPS}: it continued at {continued[0]}, and the mail was sent once."
    )


def forget_bytes(stage: Stage) -> None:
    stage.names["places"] = lambda text: sum(file.read_bytes().count(text.encode()) for file in Path().iterdir())
    stage.run(f'secret = memory.remember("{SECRET}")')
    before = stage.run('places("4417-kestrel")  # in the bytes of every file of the store')
    gone = stage.run("memory.forget(secret)")
    after = stage.run('places("4417-kestrel")')
    stage.fact("places_before", before, before > 0)
    stage.fact("places_after", after, after == 0 and not gone.pending)
    files = ", ".join(sorted(file.name for file in Path().iterdir()))
    stage.fact("files_scanned", files)
    stage.say(f"Forgotten means removed: the text is in none of {files}.")


def measure_speed(stage: Stage) -> None:
    memory = stage.names["memory"]
    write = _median_ms(lambda n: memory.remember(f"Sensor {n} reads {n * 7 % 40} degrees."))
    recall = _median_ms(lambda n: memory.recall(f"What does sensor {n} read?"))
    items = memory.store.status().store["open_items"]
    stage.fact("write_ms", round(write, 2))
    stage.fact("recall_ms", round(recall, 2))
    stage.fact("items", items)
    stage.show(f"   one durable write   {write:6.1f} ms   {dim('embedded, indexed, on disk')}")
    stage.show(f"   one recall          {recall:6.1f} ms   {dim(f'meaning and words, over {items} items')}")
    stage.say(f"The median of {ROUNDS} each, measured just now on this machine.")


def fill_pages(stage: Stage) -> None:
    for subject, relation, other in RELATIONS:
        stage.run(f'memory.relations.add("{subject}", "{relation}", "{other}")', silent=True)
    stage.run('opening = memory.start_session("monday")', silent=True)
    for role, text in TALK:
        stage.run(f'memory.add_message("{role}", "{text}")', silent=True)
    stage.run("closing = memory.end_session()", silent=True)
    stage.names["pay"] = _lose_connection
    with suppress(StepAmbiguous):
        stage.run('with memory.task("refund-7", goal="pay it back") as run: run.effect("pay", pay)', silent=True)
    stage.say("The connection broke while it paid: nobody knows whether it did. The task waits for your decision.")


def _lose_connection() -> None:
    raise ConnectionError("the connection was lost")


def erase_user(stage: Stage) -> None:
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
    stage.verdict("Every tier, index, journal and byte is erased and verified. The receipt has no content.")


def _median_ms(call: Callable[[int], object]) -> float:
    times = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        call(number)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


SCENES: Scenes = (
    ("Remember, and recall. No key, no server, no download.", remember_and_recall),
    ("A question it cannot answer.", ask_the_unknown),
    ("A fact that changes.", change_a_fact),
    ("The user who comes back after three days.", return_after_three_days),
    ("A preference of session 1, in session 47.", recall_after_47_sessions),
    ("A conversation of five hundred turns.", talk_500_turns),
    ("A second process.", read_in_second_process),
    ("A process that is killed while it writes.", kill_writer),
    ("A long task whose process is killed.", kill_task_worker),
    ("Forgetting, down to the bytes.", forget_bytes),
    ("What it costs.", measure_speed),
    ("The user who wants to be erased, and a receipt for it.", erase_user),
)
# On the page a person erases the user, so the memory must still be there.
PAGE_SCENES: Scenes = (*SCENES[:-1], ("A page to look into it.", fill_pages))
