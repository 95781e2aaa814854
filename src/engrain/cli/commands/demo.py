"""The command `engrain demo`: it plays the scenes of demo.txt on a temporary store."""

from __future__ import annotations

import io
import itertools
import re
import shutil
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from engrain.cli.command import memory_command
from engrain.cli.commands.ui import check_installed, show_page
from engrain.cli.context import CommandContext
from engrain.cli.output import bold, dim, wrap
from engrain.core.clock import system_clock
from engrain.core.identity import Scope
from engrain.memory import Memory, Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WRITING_SECONDS = 0.7  # before the writer is killed
MIN_WRITES = 20  # however slow the disk is
KILLED_IN_STEP = 18
ROUNDS = 40
READ_SECONDS = 0.20  # for a line
THINK_SECONDS = 0.50  # for a scene
OUTBOX = Path("outbox.txt")
NEXT = (
    ('engrain remember "Ana likes tea."', "your own memory, in engrain.db"),
    ('engrain recall "What does Ana drink?"', "find it again, from any process"),
    ("engrain --help", "every command"),
)


class Scene(NamedTuple):
    """A title, and lines that the stage plays. The first characters of a line say how:

    `>>> code` and `... more of it` run as at Python's prompt; a `;` at the end hides the value. `reader>>> code` is
    sent to that process. `! code` runs unseen. `= name: value | promise` records a fact; `_` is the last value. Any
    other line is spoken; one that begins with ✓ is a verdict. Texts may name facts in braces.
    """

    title: str
    lines: tuple[str, ...]


def read_scenes(text: str) -> Iterator[Scene]:
    for part in text.removeprefix("# ").split("\n\n# "):
        title, *lines = re.split(r"\n(?!\.\.\. )", part.strip())
        yield Scene(title, tuple(line.replace("\n... ", "\n") for line in lines))


*_SHARED, _ERASURE, _PAGE = read_scenes(Path(__file__).with_suffix(".txt").read_text("utf-8"))
SCENES = (*_SHARED, _ERASURE)
# On the page a person erases the user, so the memory must still be there.
PAGE_SCENES = (*_SHARED, _PAGE)


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
        stage = Stage(fast=fast, quiet=cli.json)
        stage.show(f"{bold('engrain')}: a memory for AI agents that stays.")
        stage.show(dim("Every line below runs as you read it, on a temporary store."))
        stage.play(PAGE_SCENES if ui else SCENES)
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
    activate = Path(sys.argv[0]).with_name("activate")
    first = [(f"source {activate}", "the command engrain in this shell")]
    for command, meaning in (*(first if activate.exists() and not shutil.which("engrain") else ()), *NEXT):
        yield f"   {click.style(command.ljust(40), fg='cyan')}{dim(meaning)}"
    yield ""


def format_code(code: str) -> str:
    """Show code as Python's own prompt does."""
    lines = (click.style(line, fg="cyan") for line in code.rstrip().split("\n"))
    return "\n".join(f"   {dim('...' if number else '>>>')} {line}" for number, line in enumerate(lines))


@dataclass
class Stage:
    """Plays scenes with `names` as their variables, collects measured `facts`, and lists `broken` promises."""

    fast: bool = False
    quiet: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def play(self, scenes: Iterable[Scene]) -> None:
        worked: list[int] = []
        # The scenes may use everything of this module, too.
        self.names |= {**globals(), "stage": self, "worked": worked}
        self.names |= make_task_functions(lambda n: worked.append(int(n)), stuck=False)
        try:
            # The other processes start early, so that no scene waits for Python to start.
            for name in ("reader", "writer", "worker"):
                self.names[name] = Process("agent.db", "ana")
            for number, scene in enumerate(scenes, 1):
                self.show(f"\n{click.style(str(number), fg='cyan')}  {bold(scene.title)}")
                self._play_lines(scene.lines)
                self.pause(THINK_SECONDS)
        finally:
            self.close()

    def _play_lines(self, lines: Iterable[str]) -> None:
        """Play the lines of a scene until its end or a broken promise."""
        for line in lines:
            mark, _, text = line.partition(" ")
            if mark == ">>>":
                self.run(text.removesuffix(";"), silent=text.endswith(";"))
            elif mark.endswith(">>>"):
                self.send(self.names[mark.removesuffix(">>>")], text)
            elif mark == "!":
                self.names["_"] = eval(text, self.names)
            elif mark == "=":
                name, _, tested = text.partition(": ")
                value, _, promise = tested.partition(" | ")
                known = self.names | self.facts
                known[name] = found = eval(value, known)
                if not self.fact(name, found, not promise or bool(eval(promise, known))):
                    return
            else:
                self.say(line.format(**self.facts))

    def run(self, code: str, *, silent: bool = False) -> Any:
        """Show the code, run it as Python's prompt would, show and return its value."""
        self.show(format_code(code))
        values: list[Any] = []
        printed, hook = io.StringIO(), sys.displayhook
        sys.displayhook = values.append
        try:
            with redirect_stdout(printed):
                exec(compile(code + "\n", "<demo>", "single"), self.names)
        finally:
            sys.displayhook = hook
        value = values[-1] if values else None
        if not silent:
            self.show_value(printed.getvalue().rstrip("\n") if value is None else repr(value))
        self.pause(READ_SECONDS)
        self.names |= {"_": printed.getvalue() if value is None else value, "code": code}
        return self.names["_"]

    def send(self, process: Process, code: str) -> None:
        self.show(f"   {dim(f'in process {process.pid}:')}\n{format_code(code)}")
        process.send(code)

    def show_value(self, text: str) -> str:
        for part in text.split("\n") if text else ():
            first, *others = wrap(part, " " * 7)
            # The rest of a list's entry stands under its text.
            for line in (first, *(textwrap.indent(one, "  " * part.startswith("- ")) for one in others)):
                self.show(line)
        return text

    def fact(self, name: str, value: Any, holds: bool = True) -> bool:
        """Record a fact. A broken promise is shown and makes the exit code 1."""
        self.facts[name] = value
        if not holds:
            self.broken.append(name)
            self.show(click.style(f"   ✗ {name}: {value!r} is not as promised.", fg="red"))
        return holds

    def say(self, text: str) -> None:
        """Show a text; a verdict, which begins with ✓, with a green mark."""
        mark, _, verdict = text.partition("✓ ")
        first, *more = wrap(verdict, "     ") if verdict else wrap(mark, "   ")
        self.show(f"   {click.style('✓', fg='green', bold=True)} {first.strip()}" if verdict else first)
        for line in more:
            self.show(line)

    def show(self, text: str) -> None:
        if not self.quiet:
            click.echo(text)

    def pause(self, seconds: float) -> None:
        if not (self.fast or self.quiet):
            time.sleep(seconds)

    def close(self) -> None:
        for opened in reversed(list(self.names.values())):
            if isinstance(opened, (Memory, Process)):
                opened.close()


class Process:
    """A separate process that runs code and answers with texts: what the code printed, or acknowledged."""

    def __init__(self, store: str, user: str) -> None:
        spawn = get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._child = spawn.Process(target=serve, args=(theirs, store, user), daemon=True)
        self._child.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        return self._child.pid

    def send(self, code: str) -> None:
        self._pipe.send(code)

    def read(self) -> str:
        """Wait for the next answer."""
        try:
            return str(self._pipe.recv())
        except EOFError:
            self._child.join()
            code = self._child.exitcode
            raise click.ClickException(f"the demo's process {self.pid} ended early, with exit code {code}.") from None

    def kill(self) -> list[str]:
        """Kill it with SIGKILL, without clean-up; return the answers that it gave until then."""
        self._child.kill()
        self._child.join()
        answers = []
        with suppress(EOFError, OSError):  # an unfinished answer does not count
            while True:
                answers.append(self._pipe.recv())
        return answers

    def close(self) -> None:
        self._pipe.close()
        self._child.join(5)
        self._child.kill()


def serve(pipe: Connection[Any, str], store: str, user: str) -> None:
    """Run the code that the demo sends, until it closes the pipe."""
    with Memory(store, user=user, background=False) as memory, suppress(EOFError, OSError):
        names = {"memory": memory, "count": itertools.count, "acknowledge": pipe.send}
        names |= make_task_functions(pipe.send, stuck=True)
        while True:
            code, printed = pipe.recv(), io.StringIO()
            with redirect_stdout(printed):
                exec(compile(code + "\n", "<demo>", "single"), names)
            pipe.send(printed.getvalue().rstrip("\n"))


@dataclass
class Calendar:
    """A clock that a scene can set forward."""

    days: float = 0

    def __call__(self) -> datetime:
        return system_clock() + timedelta(days=self.days)


def make_task_functions(report: Callable[[str], object], stuck: bool) -> dict[str, Any]:
    """The functions that `ship` calls. A stuck worker stays in the step in which it will be killed."""

    def send_mail(to: str) -> None:
        with OUTBOX.open("a") as outbox:
            outbox.write(f"to {to}\n")

    def work(n: int) -> None:
        report(str(n))
        if stuck and n == KILLED_IN_STEP:
            time.sleep(60)

    return {"send_mail": send_mail, "work": work}


def places(text: str) -> int:
    return sum(file.read_bytes().count(text.encode()) for file in Path().iterdir())


def pay() -> None:
    raise ConnectionError("the connection was lost")


def list_failed_checks(memory: Memory) -> list[str]:
    return [check.name for check in memory.store.doctor(memory.scope) if check.state == "fail"]


def kill_writer(stage: Stage) -> None:
    """Kill the writer in the midst of its work, and keep the ids that it acknowledged."""
    writer: Process = stage.names["writer"]
    acknowledged, end = [writer.read()], time.monotonic() + WRITING_SECONDS
    while len(acknowledged) < MIN_WRITES or time.monotonic() < end:
        acknowledged.append(writer.read())
    stage.show(f"   {dim('$')} {click.style(f'kill -9 {writer.pid}', fg='cyan')}")
    stage.names["acknowledged"] = acknowledged + writer.kill()
    stage.pause(READ_SECONDS)


def kill_worker(stage: Stage) -> None:
    worker: Process = stage.names["worker"]
    while worker.read() != str(KILLED_IN_STEP):
        pass
    killed = click.style(f"kill -9 {worker.pid}", fg="cyan")
    stage.show(f"   {dim('$')} {killed}  {dim(f'# it is in step {KILLED_IN_STEP}')}")
    worker.kill()


def measure_speed(stage: Stage) -> None:
    memory = stage.names["memory"]
    write = _median_ms(lambda n: memory.remember(f"Sensor {n} reads {n * 7 % 40} degrees."))
    recall = _median_ms(lambda n: memory.recall(f"What does sensor {n} read?"))
    items = memory.store.status().store["open_items"]
    stage.facts |= {"write_ms": round(write, 2), "recall_ms": round(recall, 2), "items": items}
    stage.show(f"   one durable write   {write:6.1f} ms   {dim('embedded, indexed, on disk')}")
    stage.show(f"   one recall          {recall:6.1f} ms   {dim(f'meaning and words, over {items} items')}")


def _median_ms(call: Callable[[int], object]) -> float:
    times = []
    for number in range(ROUNDS):
        start = time.perf_counter()
        call(number)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
