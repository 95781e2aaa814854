"""A task whose journal is in Redis and whose items are not, in a process that dies between the two writes."""

from __future__ import annotations

import os
import signal
import sys

from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.tasks.step_journal import StepJournal

NOTES = ["The first note.", "The second note."]
DATED = "2020-01-01"  # a dated text is never merged with another: only its request id keeps it from being written twice


def main(settings: str) -> None:
    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with Memory(settings, user="ana", embedder=HashEmbedder(), background=False) as memory, memory.task("order") as run:
        run.step("plan", lambda: "planned")
        StepJournal.record = killed  # type: ignore[assignment]
        run.remember_step("note", NOTES, occurred_at=DATED)


if __name__ == "__main__":
    main(sys.argv[1])
