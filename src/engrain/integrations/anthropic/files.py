"""The files of Claude's memory tool as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from anthropic.lib.tools import ToolError

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict
from engrain.core.model.records import RecordDraft, RecordKey
from engrain.integrations.memory_owners import AnyMemory, open_memory
from engrain.integrations.record_decoding import find_next_number, read_number, read_text

SPACE = "anthropic memory"
ROOT = "/memories"
# The first part of a key. A path follows; for a version as one part, and the time in microseconds behind it.
FILE, FOLDER, VERSION = "file", "folder", "version"
MAX_VERSIONS = 50  # of a file
_TIME_DIGITS = 17
_SHOWN_DEPTH = 2
_NUMBER_WIDTH = 6
Path = tuple[str, ...]


class FileVersion(NamedTuple):
    """An earlier content of a file, and when it was replaced."""

    text: str
    replaced_at: datetime


class MemoryFiles:
    """The files under /memories of one memory. Answers and errors are those of Anthropic's own tools."""

    def __init__(self, memory: AnyMemory) -> None:
        self._records = open_memory(memory).records

    def view(self, path: str, view_range: Sequence[int] | None = None) -> str:
        parts = _parse(path)
        text = self._read_text(parts)
        if text is not None:
            return _number_lines(path, text.split("\n"), view_range)
        self._require_folder(parts, path)
        sizes = self._measure(parts)
        header = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:"
        total = _format_size(sum(size for name, size in sizes.items() if name[-1:] != ("",)))
        shown = (f"{_format_size(sizes[name])}\t{path}/{'/'.join(name)}" for name in _list_shown(sizes))
        return "\n".join((header, f"{total}\t{path}", *shown))

    def create(self, path: str, file_text: str) -> str:
        parts = _parse(path)
        taken = f"File {path} already exists"
        if not parts or self._exists(parts):
            raise ToolError(taken)
        self._require_no_file_above(parts, path)
        free = [((kind, *parts), None) for kind in (FILE, FOLDER)]
        above = [((FILE, *parts[:n]), None) for n in range(1, len(parts))]
        try:
            draft = RecordDraft((FILE, *parts), _encode(file_text))
            self._records.write(SPACE, [draft, *_make_folders(parts)], expect=[*free, *above])
        except Conflict as exc:  # somebody else made it just now
            raise ToolError(taken) from exc
        return f"File created successfully at: {path}"

    def str_replace(self, path: str, old_str: str, new_str: str) -> str:
        def replace(text: str) -> tuple[str, str]:
            found = [n for n in range(len(text)) if text.startswith(old_str, n)] if old_str in text else []
            if not found:
                raise ToolError(f"No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.")
            if text.count(old_str) > 1:
                lines = ", ".join(str(text.count("\n", 0, at) + 1) for at in found)
                raise ToolError(
                    f"No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: {lines}. "
                    "Please ensure it is unique"
                )
            changed = text.replace(old_str, new_str)
            line = text.count("\n", 0, found[0])
            return changed, _show_lines(changed.split("\n"), max(0, line - 2), line + 3)

        shown = self._edit(path, replace)
        return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{shown}"

    def insert(self, path: str, insert_line: int, insert_text: str) -> str:
        def add(text: str) -> tuple[str, str]:
            lines = text.split("\n")
            if lines[-1] == "":
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                raise ToolError(
                    f"Invalid `insert_line` parameter: {insert_line}. It should be within the range [0, {len(lines)}]."
                )
            lines.insert(insert_line, insert_text.rstrip("\n"))
            changed = "\n".join(lines)
            return changed if changed.endswith("\n") else changed + "\n", ""

        self._edit(path, add)
        return f"The file {path} has been edited."

    def delete(self, path: str) -> str:
        parts = _parse(path)
        if not parts:
            raise ToolError("Cannot delete the /memories directory itself")
        if not self._exists(parts):
            raise ToolError(f"The path {path} does not exist")
        # The versions go with the file: what is deleted must not stay.
        for name in self._list_files(parts):
            self._records.drop(SPACE, (VERSION, "/".join(name)))
        for kind in (FILE, FOLDER):
            self._records.drop(SPACE, (kind, *parts))
        return f"Successfully deleted {path}"

    def rename(self, old_path: str, new_path: str) -> str:
        old, new = _parse(old_path), _parse(new_path)
        if not old:
            raise ToolError("Cannot rename the /memories directory itself")
        if not new or self._exists(new):
            raise ToolError(f"The destination {new_path} already exists")
        if not self._exists(old):
            raise ToolError(f"The path {old_path} does not exist")
        if new[: len(old)] == old:
            raise ToolError(f"{old_path} cannot be moved into itself")
        self._require_no_file_above(new, new_path)
        moved, drops = _make_folders(new), [(FILE, *old), (FOLDER, *old)]
        for kind in (FILE, FOLDER):
            for one in self._records.scan(SPACE, (kind, *old), limit=10_000):
                moved.append(RecordDraft((kind, *new, *one.key[1 + len(old) :]), one.body))
        for name in self._list_files(old):
            drops.append((VERSION, "/".join(name)))
            target = "/".join((*new, *name[len(old) :]))
            for one in self._records.scan(SPACE, (VERSION, "/".join(name))):
                moved.append(RecordDraft((VERSION, target, *one.key[2:]), one.body))
        self._records.write(SPACE, moved, drops=drops)
        return f"Successfully renamed {old_path} to {new_path}"

    def clear(self) -> str:
        self._records.drop(SPACE)
        return "All memory cleared"

    def list_versions(self, path: str) -> list[FileVersion]:
        """Return the earlier contents of a file, newest first."""
        stored = self._records.scan(SPACE, (VERSION, "/".join(_parse(path))), order="descending")
        return [FileVersion(read_text(one), from_micros(read_number(one.key, _TIME_DIGITS))) for one in stored]

    def _edit(self, path: str, change: Callable[[str], tuple[str, str]]) -> str:
        """Replace the text of a file, and keep the one before as a version."""
        parts = _parse(path)
        while True:
            found = self._records.read(SPACE, [(FILE, *parts)]) if parts else []
            if not found:
                self._require_folder(parts, path)
                raise ToolError(f"The path {path} is not a file.")
            text, shown = change(read_text(found[0]))
            under = (VERSION, "/".join(parts))
            versions = self._records.keys(SPACE, under)
            following = find_next_number(versions[-1] if versions else None, _TIME_DIGITS)
            number = max(to_micros(self._records.now()), following)
            drafts = [
                RecordDraft(found[0].key, _encode(text)),
                RecordDraft((*under, f"{number:0{_TIME_DIGITS}}"), found[0].body),
            ]
            try:
                old = versions[: max(0, len(versions) + 1 - MAX_VERSIONS)]
                self._records.write(SPACE, drafts, drops=old, expect=[(found[0].key, found[0].hash)])
                return shown
            except Conflict:  # somebody else edited it just now
                continue

    def _read_text(self, parts: Path) -> str | None:
        found = self._records.read(SPACE, [(FILE, *parts)]) if parts else []
        return read_text(found[0]) if found else None

    def _exists(self, parts: Path) -> bool:
        return not parts or bool(self._records.read(SPACE, [(FILE, *parts), (FOLDER, *parts)]))

    def _require_folder(self, parts: Path, path: str) -> None:
        if not self._exists(parts):
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")

    def _require_no_file_above(self, parts: Path, path: str) -> None:
        above: list[RecordKey] = [(FILE, *parts[:n]) for n in range(1, len(parts))]
        if found := self._records.read(SPACE, above):
            raise ToolError(f"{path} cannot be made: {ROOT}/{'/'.join(found[0].key[1:])} is a file.")

    def _list_files(self, parts: Path) -> list[Path]:
        return [key[1:] for key in self._records.keys(SPACE, (FILE, *parts))]

    def _measure(self, parts: Path) -> dict[Path, int]:
        """Return the size of each file below a folder; of each folder, with "" behind its name, that of its files."""
        skip = 1 + len(parts)
        folders = [key[skip:] for key in self._records.keys(SPACE, (FOLDER, *parts))]
        files = {one.key[skip:]: len(one.body) for one in self._records.scan(SPACE, (FILE, *parts), limit=10_000)}
        inside = {
            name: sum(size for file, size in files.items() if file[: len(name)] == name) for name in folders if name
        }
        return {**files, **{(*name, ""): size for name, size in inside.items()}}


def _parse(path: str) -> Path:
    """Return the parts of a path below /memories."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    parts: list[str] = []
    for part in path[len(ROOT) :].split("/"):
        if part == ".." and not parts:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _make_folders(parts: Path) -> list[RecordDraft]:
    """The folders above a path."""
    return [RecordDraft((FOLDER, *parts[:n]), b"", keep=True) for n in range(1, len(parts))]


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a model may send half of a pair of surrogates


def _list_shown(sizes: dict[Path, int]) -> Iterator[Path]:
    """Yield the names up to two levels deep in order, a folder before what is in it."""
    names = [name for name in sizes if not any(part.startswith(".") for part in name)]
    return iter(sorted(name for name in names if len([part for part in name if part]) <= _SHOWN_DEPTH))


def _number_lines(path: str, lines: list[str], view_range: Sequence[int] | None) -> str:
    start, end = 0, len(lines)
    if view_range and len(view_range) == 2:
        start, end = max(1, view_range[0]) - 1, len(lines) if view_range[1] == -1 else view_range[1]
    return f"Here's the content of {path} with line numbers:\n{_show_lines(lines, start, end)}"


def _show_lines(lines: list[str], start: int, end: int) -> str:
    return "\n".join(f"{n:>{_NUMBER_WIDTH}}\t{line}" for n, line in enumerate(lines[start:end], start + 1))


def _format_size(size: int) -> str:
    unit = 0
    while size >= 1024 ** (unit + 1) and unit < 3:
        unit += 1
    number = size / 1024**unit
    return f"{int(number) if number == int(number) else f'{number:.1f}'}{'BKMG'[unit]}"
