"""Read CLAUDE.md, AGENTS.md and other files with rules, and write kept rules into a block of such a file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from engrain.connect.connect_home import write_file
from engrain.connect.repository import Repository
from engrain.connect.session_texts import CODING
from engrain.core.errors import ConfigError
from engrain.core.model.items import Item, Source
from engrain.memory import Memory
from engrain.ports.plain_files import open_plain, read_plain_text

RULE_FILES = (
    "CLAUDE.md",
    "AGENTS.md",
    "GEMINI.md",
    ".github/copilot-instructions.md",
    ".cursorrules",
    ".windsurfrules",
)
MAX_RULE_CHARACTERS = 20_000
RULES_FILE = "rules-file"
BEGIN, END = "<!-- engrain: begin, written by `engrain rules --write` -->", "<!-- engrain: end -->"
_BLOCK = re.compile(rf"(?:\r?\n)?{re.escape(BEGIN)}.*?{re.escape(END)}(?:\r?\n)?", re.DOTALL)


def load_rule_files(memory: Memory, repository: Repository) -> list[Path]:
    """Keep files with rules as pinned items with path and hash, and return those that changed."""
    changed = []
    for path in _find_rule_files(repository.folder):
        with open_plain(path) as file:
            whole = file.read(4 * MAX_RULE_CHARACTERS).decode("utf-8", "replace").replace("\r\n", "\n")
        # Our own block is left out: these rules are in the memory already.
        text = _BLOCK.sub("\n", whole).replace("\r\n", "\n")[:MAX_RULE_CHARACTERS].strip()
        name = str(path.relative_to(repository.folder))
        digest = hashlib.sha256(text.encode()).hexdigest()
        slot = f"file.{name}"
        known = memory.slots.get(slot)
        if not text or (known is not None and known.metadata.get("sha256") == digest):
            continue
        metadata = {CODING: RULES_FILE, "path": name, "sha256": digest}
        id = memory.remember(text, slot=slot, source=Source(name, "document"), metadata=metadata, importance=0.8)
        memory.update(id, pinned=True)
        changed.append(path)
    return changed


def list_rule_files(memory: Memory) -> list[tuple[str, list[Item]]]:
    """The files that were read, as a section of its own."""
    found = memory.list({f"metadata.{CODING}": RULES_FILE}, limit=100)
    return [("Files with rules, recalled for a prompt", found)] if found else []


def write_rule_block(path: Path, items: Sequence[Item]) -> bool:
    """Write these items into our block of a file, at its end if it has none; without items the block goes.

    Everything outside of the block stays as it is. False if nothing changed.
    """
    before = read_plain_text(path) if path.exists() else ""
    if before.count(BEGIN) != before.count(END) or before.count(BEGIN) > 1:
        raise ConfigError(f"{path} has a damaged block of engrain: nothing was changed. Remove the block by hand.")
    line = "\r\n" if "\r\n" in before else "\n"
    rules = [f"- {' '.join(item.text.split())}".replace("-->", "—>") for item in items]
    block = f"{line}{line.join((BEGIN, *rules, END))}{line}" if rules else ""
    if BEGIN in before:
        after = _BLOCK.sub(lambda _: block, before)
    else:
        after = before + (line if before and not before.endswith("\n") else "") + block if block else before
    if after != before:
        write_file(path, (after if before else after.lstrip("\r\n")).encode())
    return after != before


def _find_rule_files(folder: Path) -> Iterator[Path]:
    rules = sorted((folder / ".cursor/rules").glob("*.md*"))
    found = (path for path in (*(folder / name for name in RULE_FILES), *rules) if path.is_file())
    # A link in a cloned repository may name any file of its reader, such as a key.
    yield from (path for path in found if path.resolve().is_relative_to(folder.resolve()))
