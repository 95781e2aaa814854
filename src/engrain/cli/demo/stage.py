"""Where a scene plays: it runs the very line it shows, prints what came back, and keeps the facts."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import click

from engrain.cli.output import faint, strong, wrapped

INDENT = "    "
READ = 0.20  # seconds to read a line
THINK = 0.50  # seconds to take in what a scene has shown


def prompted(code: str) -> str:
    """As Python's own prompt shows it."""
    marks = itertools.chain([">>>"], itertools.repeat("..."))
    return "\n".join(
        f"   {faint(mark)} {click.style(line, fg='cyan')}" for mark, line in zip(marks, code.split("\n"), strict=False)
    )


@dataclass
class Stage:
    """`names` is what the shown lines see; `facts` is what was measured; `broken` names the promises that failed."""

    folder: Path
    fast: bool = False
    quiet: bool = False
    names: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    leaving: list[Callable[[], None]] = field(default_factory=list)

    def title(self, number: int, text: str) -> None:
        self.show("")
        self.show(f"{click.style(str(number), fg='cyan')}  {strong(text)}")

    def run(self, code: str, *, silent: bool = False) -> Any:
        """Show the line, run it as Python's own prompt would, show what it gave; the value."""
        self.show(prompted(code))
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
        self.pause(READ)
        return printed.getvalue() if value is None else value

    def result(self, text: str) -> None:
        if text:
            for line in wrapped(text, INDENT + "   "):
                self.show(line)

    def say(self, text: str) -> None:
        for line in wrapped(text, "   "):
            self.show(line)

    def fact(self, name: str, value: Any, holds: bool = True) -> Any:
        """Keep what was seen. A promise that does not hold is said aloud and ends the demo with exit code 1."""
        self.facts[name] = value
        if not holds:
            self.broken.append(name)
            self.show(click.style(f"   ✗ {name}: {value!r} is not what was promised.", fg="red"))
        return value

    def verdict(self, text: str) -> None:
        first, *more = wrapped(text, "     ")
        self.show(f"   {click.style('✓', fg='green', bold=True)} {first.strip()}")
        for line in more:
            self.show(line)

    def show(self, text: str) -> None:
        if not self.quiet:
            click.echo(text)

    def pause(self, seconds: float = THINK) -> None:
        if not (self.fast or self.quiet):
            time.sleep(seconds)

    def leave(self) -> None:
        for step in reversed(self.leaving):
            step()


class Process:
    """A real process of its own. `ask` sends a line and waits; `send` sends one that acknowledges as it goes."""

    def __init__(self, store: str, user: str) -> None:
        command = [sys.executable, "-m", "engrain.cli.demo.stage", store, user]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def ask(self, code: str) -> str:
        self.send(code)
        return str(self._answer()["shown"])

    def send(self, code: str) -> None:
        _pipe(self._child.stdin).write(json.dumps(code) + "\n")
        _pipe(self._child.stdin).flush()

    def answered(self) -> None:
        """Wait until a line that was sent has run."""
        self._answer()

    def acknowledged(self) -> str:
        return str(self._answer()["acknowledged"])

    def kill(self) -> list[str]:
        """SIGKILL: no warning, no clean-up. Gives what it had still acknowledged before it died."""
        self._child.kill()
        self._child.wait()
        left = _pipe(self._child.stdout).read().split("\n")
        self.close()
        # The last piece is an unfinished line, or nothing: an acknowledgement counts once it is whole.
        return [json.loads(line)["acknowledged"] for line in left[:-1]]

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _answer(self) -> dict[str, Any]:
        line = _pipe(self._child.stdout).readline()
        if not line:
            raise click.ClickException(
                f"the demo's process {self.pid} ended early, with exit code {self._child.wait()}."
            )
        found: dict[str, Any] = json.loads(line)
        return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # Popen was given PIPE
    return pipe


def serve(store: str, user: str) -> None:
    from engrain.cli.demo import scenes
    from engrain.memory import Memory

    answers = sys.stdout

    def answer(**values: str) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    with Memory(store, user=user, background=False) as memory:
        names = {
            "memory": memory,
            "count": itertools.count,
            "acknowledge": lambda id: answer(acknowledged=id),
            **scenes.names(lambda n: answer(acknowledged=n), stuck=True),
        }
        for line in sys.stdin:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(json.loads(line) + "\n", "<demo>", "single"), names)
            answer(shown=printed.getvalue().rstrip("\n"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
