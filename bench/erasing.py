"""Look what a deletion leaves on the disk: engrain's, and that of what else is used.

    python bench/erasing.py [--items 200] [--out FILE]       # make bench PEERS=1 has made .venv-peers before

Each system keeps as many texts of ana as of bob, each text with a word of its own, deletes what it has of ana as its
documentation says, and ends its process. Then every byte of every file it made is looked through for ana's words. Bob's
are looked for too: where they cannot be seen, texts are kept compressed, and nothing can be said of ana's. (LanceDB
does so from a few hundred texts on.)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
CHILD = Path(__file__).parent / "peers" / "erasing_child.py"
PEERS = ("mem0", "chromadb", "lancedb", "langgraph", "sqlite-vec")
ENGRAIN = """
import json, sys, time
from engrain import Memory
users = json.load(sys.stdin)
for user, texts in users.items():
    with Memory(sys.argv[1], user=user) as memory:
        memory.remember_many(texts)
with Memory(sys.argv[1], user="bob") as memory:
    began = time.perf_counter()
    done = memory.erase(user="ana")
    took = time.perf_counter() - began
found = {}
for user in users:
    with Memory(sys.argv[1], user=user) as memory:
        found[user] = len(memory.list(limit=10_000))
print(json.dumps({"found": found, "seconds": took, "receipt": done.receipt is not None}))
"""


def texts(user: str, count: int) -> list[str]:
    return [f"{user} keeps the parcel {word(user, n)} on shelf {n % 17} of the cellar." for n in range(count)]


def word(user: str, n: int) -> str:
    return f"{user}secret{n:06d}kestrel"


def left(folder: Path, user: str, count: int) -> int:
    """How many of the user's texts have their own word in some file."""
    raw = b"\0".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())
    return sum(word(user, n).encode() in raw for n in range(count))


def measured(command: list[str], folder: Path, count: int) -> dict[str, Any]:
    users = {user: texts(user, count) for user in ("ana", "bob")}
    began = time.perf_counter()
    ran = subprocess.run(command, input=json.dumps(users), capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ran.stderr[-2000:]}")
    told = json.loads(ran.stdout.splitlines()[-1])
    return {
        **told,
        "whole_run_seconds": round(time.perf_counter() - began, 1),
        "seconds": round(told["seconds"], 3),
        "left_of_ana": left(folder, "ana", count),
        "left_of_bob": left(folder, "bob", count),
        "of": count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    report: dict[str, Any] = {}
    for name in ("engrain", *PEERS):
        with TemporaryDirectory(prefix="engrain-erasing-") as made:
            folder = Path(made)
            ours = [sys.executable, "-c", ENGRAIN, str(folder / "agent.db")]
            theirs = [str(PYTHON), str(CHILD), name, str(folder)]
            one = measured(ours if name == "engrain" else theirs, folder, chosen.items)
        report[name] = one
        sys.stdout.write(
            f"{name:11} {one['left_of_ana']:5} of {one['of']} texts of ana still in its files, "
            f"{one['found']['ana']} found by asking; of bob {one['left_of_bob']}; {one['seconds']:.2f} s\n"
        )
    if chosen.out:
        chosen.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
