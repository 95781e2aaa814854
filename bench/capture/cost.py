"""Measure what capture costs: the CPU time of a user's message with a fact, beside that of an assistant's message.

Run: python bench/capture/cost.py

The texts are messages of the training people that hold a fact. Both roles are embedded and stored alike; only what a
user says is read for facts, changes and requests to forget, and its facts are stored as well.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import HERE, read_lines

from engrain.memory import Memory, Store
from engrain.providers import local

WARM, MEASURED = 400, 200


class Passes:
    """Counts the passes of the model, and their CPU time."""

    def __init__(self) -> None:
        self.count, self.seconds = 0, 0.0
        for name in ("run", "read"):
            setattr(local._Engine, name, self._wrap(getattr(local._Engine, name)))

    def _wrap(self, call):  # type: ignore[no-untyped-def]
        def run(*arguments: object) -> object:
            start = time.process_time()
            try:
                return call(*arguments)
            finally:
                self.count, self.seconds = self.count + 1, self.seconds + time.process_time() - start

        return run


def main() -> int:
    passes = Passes()
    texts = list_texts()
    with TemporaryDirectory(prefix="engrain-cost-") as folder, Store(Path(folder) / "cost.db") as store:
        for role in ("assistant", "user"):
            memory = store.memory(user=role)
            memory.start_session()
            play(memory, role, texts[:WARM])
            passes.count, passes.seconds = 0, 0.0
            start = time.process_time()
            facts = play(memory, role, texts[WARM:])
            total, count = time.process_time() - start, len(texts) - WARM
            sys.stdout.write(
                f"{role:<10} {1000 * total / count:5.1f} ms of CPU a message, {facts} facts of {count} messages;"
                f" {passes.count / count:.2f} passes of the model, {1000 * passes.seconds / count:.1f} ms;"
                f" beside them {1000 * (total - passes.seconds) / count:.1f} ms\n"
            )
    return 0


def list_texts() -> list[str]:
    found = [
        record["text"]
        for path in sorted((HERE / "training").glob("*.jsonl"))
        for record in read_lines(path)
        if record["type"] == "message" and any(part["kind"] == "fact" for part in record["parts"])
    ]
    random.Random(1).shuffle(found)
    return found[: WARM + MEASURED]


def play(memory: Memory, role: str, texts: list[str]) -> int:
    return sum(len(memory.add_message(role, text).facts) for text in texts)


if __name__ == "__main__":
    sys.exit(main())
