"""A memory with a word of its own in every tier and every field, and a look for that word in every byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from engrain_conformance.embedder import HashEmbedder

from engrain import ErasureResult, Memory, RecordDraft, RestoreResult, Source, restore_backup
from engrain.core.model.queries import Summary

WORD = "zephyrquokka"  # long enough to be looked for, and in nobody else's data
FIELDS = (
    "text", "metadata", "slot", "session", "speaker", "source", "relation", "task", "goal", "input", "result", "large",
    "event", "raw", "procedure", "trial", "summary", "request", "snapshot", "error", "decision", "record",
)  # fmt: skip


def opened(store: str | Path, user: str = "ana", **options: Any) -> Memory:
    return Memory(store, user=user, **{"embedder": HashEmbedder(), **options})


def fill(memory: Memory, word: str = WORD) -> None:
    """Each field has the word with its own name."""
    said = {field: f"{word}-{field}" for field in FIELDS}
    memory.remember(
        f"A text with {said['text']} in it.",
        slot=f"user.{said['slot']}",
        metadata={said["metadata"]: said["metadata"]},
        source=Source(said["source"], "web"),
        request_id=said["request"],
    )
    memory.relations.add("Ana", said["relation"], "Chess")
    memory.add_message("user", f"I am {said['text']}, in a session.", session=said["session"], speaker=said["speaker"])
    memory.episodic.record_tool_call(
        "read", {"path": said["raw"]}, said["raw"] + " line\n" * 500, session=said["session"]
    )
    memory.episodic.record_decision(f"We take {said['decision']}.", session=said["session"])
    memory.episodic.record_error(f"It broke: {said['error']}.", session=said["session"])
    log = memory.store.services.log
    log.summarize(memory.scope, said["session"], Summary(f"They spoke of {said['summary']}.", 1, 1))
    procedure = memory.procedural.learn(said["procedure"], [f"Take the {said['procedure']}."])
    memory.procedural.used(procedure, said["task"], False, said["trial"])
    with memory.task(said["task"], goal=said["goal"]) as run:
        memory.working.add_thought(said["snapshot"])
        run.step(said["input"], lambda given: f"{said['result']} of {given}", said["input"])
        run.step("large", lambda: said["large"] * 2_000)
    memory.records.write(
        said["record"], [RecordDraft((said["record"],), f"A body with {said['record']}.".encode() * 500)]
    )
    memory.tasks.signal("waits-for-it", said["event"], said["event"])


def replace_copy(store: Path, backup: Path, to: Path) -> RestoreResult:
    """Restore a backup in place of a copy of the present store, which may be in use."""
    # In another process: a second SQLite library in this one would drop the locks of the first and remove its log.
    subprocess.run([sys.executable, "-c", COPIER, str(store), str(to)], check=True)
    return restore_backup(backup, to, force=True)


COPIER = """
import sqlite3, sys
source, target = map(sqlite3.connect, sys.argv[1:])
source.backup(target)
target.close()
source.close()
"""


def found(folder: Path, word: str = WORD) -> dict[str, int]:
    """How often the word is in the bytes of which file."""
    files = [one for one in folder.rglob("*") if one.is_file()]
    # In other processes: to open and close the file in this one would drop the locks that SQLite has on it here.
    counted = {one: subprocess.run(["grep", "-aoc", word, str(one)], capture_output=True, check=False) for one in files}
    return {one.name: int(done.stdout or 0) for one, done in counted.items() if int(done.stdout or 0)}


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from erasing_kit import opened
with opened(sys.argv[2]) as memory:
    print(len(memory.recall("zephyrquokka text").hits), flush=True)
    for _ in sys.stdin:
        print(len(memory.recall("zephyrquokka text").hits), flush=True)
"""


def other_process(store: Path) -> subprocess.Popen[str]:
    """One that has searched the memory, and searches again for every line it is sent."""
    command = [sys.executable, "-c", HOLDER, str(Path(__file__).parent), str(store)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def erase_from(memory: Memory, **what: Any) -> ErasureResult:
    """A user is the store's to erase, a part of a memory its own."""
    return memory.store.erase(**what) if "user" in what else memory.erase(**what)
