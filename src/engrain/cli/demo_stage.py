"""Run and show the code of the demo, in this process and in others."""

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

from engrain.cli.output import bold, dim, wrap

INDENT = "    "
READ_SECONDS = 0.20  # for a line
THINK_SECONDS = 0.50  # for a scene


def format_code(code: str) -> str:
    """Show code as Python's own prompt does."""
    marks = itertools.chain([">>>"], itertools.repeat("..."))
    return "\n".join(
        f"   {dim(mark)} {click.style(line, fg='cyan')}" for mark, line in zip(marks, code.split("\n"), strict=False)
    )


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
    """A separate process that runs code. `ask` waits for the output; `send` does not."""

    def __init__(self, store: str, user: str) -> None:
        command = [sys.executable, "-m", "engrain.cli.demo_stage", store, user]
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
        return str(self._read()["shown"])

    def send(self, code: str) -> None:
        _pipe(self._child.stdin).write(json.dumps(code) + "\n")
        _pipe(self._child.stdin).flush()

    def wait(self) -> None:
        """Wait until the sent code has run."""
        self._read()

    def read_acknowledgement(self) -> str:
        return str(self._read()["acknowledged"])

    def kill(self) -> list[str]:
        """Kill it with SIGKILL, without clean-up; return what it acknowledged until then."""
        self._child.kill()
        self._child.wait()
        lines = _pipe(self._child.stdout).read().split("\n")
        self.close()
        # The last piece is an unfinished line, or empty: only a complete line counts.
        return [json.loads(line)["acknowledged"] for line in lines[:-1]]

    def close(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _read(self) -> dict[str, Any]:
        line = _pipe(self._child.stdout).readline()
        if not line:
            raise click.ClickException(
                f"the demo's process {self.pid} ended early, with exit code {self._child.wait()}."
            )
        message: dict[str, Any] = json.loads(line)
        return message


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # Popen was given PIPE
    return pipe


def serve(store: str, user: str) -> None:
    from engrain.cli.commands import demo
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
            **demo.make_task_functions(lambda n: answer(acknowledged=n), stuck=True),
        }
        for line in sys.stdin:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(json.loads(line) + "\n", "<demo>", "single"), names)
            answer(shown=printed.getvalue().rstrip("\n"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
