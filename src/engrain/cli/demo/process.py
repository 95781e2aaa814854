"""Another process with the same memory, which runs the lines it is sent."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
from contextlib import redirect_stdout
from typing import IO, Any

import click


class Process:
    """A real process of its own. `ask` sends a line and waits; `send` sends one that acknowledges as it goes."""

    def __init__(self, store: str, user: str) -> None:
        command = [sys.executable, "-m", "engrain.cli.demo.process", store, user]
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
    from engrain.cli.demo import order
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
            **order.names(lambda n: answer(acknowledged=n), stuck=True),
        }
        for line in sys.stdin:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(json.loads(line) + "\n", "<demo>", "single"), names)
            answer(shown=printed.getvalue().rstrip("\n"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
