"""Where a scene plays: it runs the very line it shows, prints what came back, and keeps the facts."""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from engrain.cli.shown import faint, strong, wrapped

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
