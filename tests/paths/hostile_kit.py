"""Attacks by files: each runs in a child with little time and memory, beside things that it must not touch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from engrain_conformance.embedder import HashEmbedder
from test_hostile_paths import OK, run_limited

from engrain import Memory

Attack = Callable[[Path], object]
SECRET = "The locker word of Ben is marmalade."


def open_memory(path: Path) -> Memory:
    return Memory(path.with_name("memory.db"), user="ana", embedder=HashEmbedder(), background=False)


def check_attacks(folder: Path, attacks: Mapping[str, Attack]) -> int:
    """Each attack ends in a typed error, or its file was data. Nothing outside of its folder is changed."""
    (folder / "outside").mkdir()
    with Memory(folder / "outside" / "ben.db", user="ben", embedder=HashEmbedder(), background=False) as memory:
        memory.remember(SECRET)
    (folder / "outside" / "notes.md").write_text(f"- {SECRET}\n")
    before = describe_tree(folder / "outside")
    places = [folder / "attacks" / str(number) for number in range(len(attacks))]
    for place in places:
        place.mkdir(mode=0o700, parents=True)
    said = run_limited([partial(attack, place) for attack, place in zip(attacks.values(), places, strict=True)])
    assert {name: found for name, found in zip(attacks, said, strict=True) if found not in ("", OK)} == {}
    assert describe_tree(folder / "outside") == before, "something outside was changed"
    assert sorted(os.listdir(folder)) == ["attacks", "outside"], "something was made outside"
    return len(attacks)


def describe_tree(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[path.name] = f"{path.lstat().st_mode:o} {content}"
    return found
