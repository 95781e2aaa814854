"""Run and show the code of the demo, in this process and in others."""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.output import bold, dim, wrap

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

INDENT = "    "
READ_SECONDS = 0.20  # for a line
THINK_SECONDS = 0.50  # for a scene


def format_code(code: str) -> str:
    """Show code as Python's own prompt does."""
    lines = (click.style(line, fg="cyan") for line in code.rstrip().split("\n"))
    return "\n".join(f"   {dim('...' if number else '>>>')} {line}" for number, line in enumerate(lines))


@dataclass
class Stage:
    """Runs code with `names` as its variables, collects measured `facts`, and lists `broken` promises."""

    folder: Path
    fast: bool = False
    quiet: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    on_close: list[Callable[[], None]] = field(default_factory=list)

    def title(self, number: int, text: str) -> None:
        self.show("")
        self.show(f"{click.style(str(number), fg='cyan')}  {bold(text)}")

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
            self.result(printed.getvalue().rstrip("\n") if value is None else repr(value))
        self.pause(READ_SECONDS)
        return printed.getvalue() if value is None else value

    def result(self, text: str) -> None:
        if text:
            for line in wrap(text, INDENT + "   "):
                self.show(line)

    def say(self, text: str) -> None:
        for line in wrap(text, "   "):
            self.show(line)

    def fact(self, name: str, value: Any, holds: bool = True) -> Any:
        """Record a fact. A broken promise is shown and makes the exit code 1."""
        self.facts[name] = value
        if not holds:
            self.broken.append(name)
            self.show(click.style(f"   ✗ {name}: {value!r} is not as promised.", fg="red"))
        return value

    def verdict(self, text: str) -> None:
        first, *more = wrap(text, "     ")
        self.show(f"   {click.style('✓', fg='green', bold=True)} {first.strip()}")
        for line in more:
            self.show(line)

    def show(self, text: str) -> None:
        if not self.quiet:
            click.echo(text)

    def pause(self, seconds: float = THINK_SECONDS) -> None:
        if not (self.fast or self.quiet):
            time.sleep(seconds)

    def close(self) -> None:
        for callback in reversed(self.on_close):
            callback()


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
    from engrain.cli.commands import demo
    from engrain.memory import Memory

    with Memory(store, user=user, background=False) as memory, suppress(EOFError, OSError):
        names = {"memory": memory, "count": itertools.count, "acknowledge": pipe.send}
        names |= demo.make_task_functions(pipe.send, stuck=True)
        while True:
            code, printed = pipe.recv(), io.StringIO()
            with redirect_stdout(printed):
                exec(compile(code + "\n", "<demo>", "single"), names)
            pipe.send(printed.getvalue().rstrip("\n"))
