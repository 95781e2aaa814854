"""Edit a JSON text in place, so that comments, order and spaces of all other entries stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from engrain.core.errors import ConfigError

Path = Sequence[str]

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_INDENT = re.compile(r"\n([ \t]+)\S")
_ENDS_LINE = re.compile(r"[ \t]*(?:\r?\n|//)")
_DEFAULT_INDENT = "  "
_BOM = "\ufeff"


@dataclass
class Node:
    """A value in the text: its span, and for a container its entries."""

    start: int
    end: int = 0
    value: Any = None
    entries: list[Entry] = field(default_factory=list)
    opens: str = ""  # the bracket of a container

    def find(self, key: str) -> Entry | None:
        # Parsers take the last of two equal keys.
        return next((entry for entry in reversed(self.entries) if entry.key == key), None)


@dataclass
class Entry:
    """A member of an object or an element of a list, and the comma behind it."""

    start: int
    key: str | None
    node: Node
    comma: int | None = None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text

    def parse(self) -> Node:
        try:
            root = self._value(self._skip(len(_BOM) if self.text.startswith(_BOM) else 0))
        except RecursionError as exc:
            raise ConfigError("the JSON is nested too deeply: correct it first.") from exc
        if self._skip(root.end) != len(self.text):
            raise self._problem(root.end)
        return root

    def _skip(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def _problem(self, at: int) -> ConfigError:
        return ConfigError(f"line {self.text.count(chr(10), 0, at) + 1} is not JSON: correct it first.")

    def _value(self, at: int) -> Node:
        character = self.text[at : at + 1]
        if character in ("{", "["):
            return self._container(Node(at, opens=character))
        match = _STRING.match(self.text, at) or _SCALAR.match(self.text, at)
        if match is None:
            raise self._problem(at)
        try:
            return Node(at, match.end(), json.loads(match[0]))
        except (ValueError, RecursionError) as exc:
            raise self._problem(at) from exc

    def _container(self, node: Node) -> Node:
        closes = {"{": "}", "[": "]"}[node.opens]
        at = self._skip(node.start + 1)
        while self.text[at : at + 1] != closes:
            if node.entries and node.entries[-1].comma is None:
                raise self._problem(at)
            entry = self._entry(at, node.opens == "{")
            node.entries.append(entry)
            at = self._skip(entry.node.end)
            if self.text[at : at + 1] == ",":
                entry.comma = at
                at = self._skip(at + 1)
        node.end = at + 1
        values = [entry.node.value for entry in node.entries]
        node.value = dict(zip((e.key for e in node.entries), values, strict=True)) if node.opens == "{" else values
        return node

    def _entry(self, at: int, member: bool) -> Entry:
        if not member:
            return Entry(at, None, self._value(at))
        match = _STRING.match(self.text, at)
        colon = self._skip(match.end()) if match else at
        if match is None or self.text[colon : colon + 1] != ":":
            raise self._problem(at)
        return Entry(at, json.loads(match[0]), self._value(self._skip(colon + 1)))


def parse(text: str) -> Node:
    """Parse a JSON text with comments and trailing commas. ConfigError names the line of an error."""
    return _Parser(text if text.strip(_BOM + " \t\r\n") else "{}").parse()


def read(text: str) -> Any:
    """Return the value of a JSON text with comments."""
    return parse(text).value


def lookup(text: str, path: Path) -> Any:
    """Return the value at a path of members; None if there is none."""
    found = _find(parse(text), path)
    return None if found is None else found.value


def set_member(text: str, path: Path, value: Any) -> str:
    """Set a member of nested objects, which are made if they are missing."""
    text = text if text.strip(_BOM + " \t\r\n") else "{}\n"
    node = parse(text)
    for depth, key in enumerate(path):
        if node.opens != "{":
            raise ConfigError(f"{'.'.join(path[:depth]) or 'the file'} is not an object: correct it first.")
        entry = node.find(key)
        if entry is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return _insert(text, node, value, key)
        node = entry.node
    return text[: node.start] + _dump(text, value, _indent_at(text, node.start)) + text[node.end :]


def append_element(text: str, path: Path, value: Any) -> str:
    """Append an element to a list in nested objects, which are made if they are missing."""
    found = _find(parse(text), path)
    if found is None:
        return set_member(text, path, [value])
    if found.opens != "[":
        raise ConfigError(f"{'.'.join(path)} is not a list: correct it first.")
    return _insert(text, found, value, None)


def remove_member(text: str, path: Path) -> str:
    """Remove a member of nested objects, and every object on its path that is empty then."""
    node = _find(parse(text), path[:-1])
    entry = node.find(path[-1]) if node and node.opens == "{" else None
    if node is None or entry is None:
        return text
    if len(node.entries) == 1 and len(path) > 1:
        return remove_member(text, path[:-1])
    return _remove(text, node, entry)


def remove_marked(text: str, mark: str) -> str:
    """Remove each object of a list that has a text with this mark, and containers that are empty then."""
    while (chain := next(_find_marked(parse(text), mark), None)) is not None:
        # The outermost container that holds nothing else goes as a whole.
        for node, entry in reversed(chain):
            owner, going = node, entry
            if _holds_more(node, entry):
                break
        text = _remove(text, owner, going)
    return text


def _holds_more(node: Node, entry: Entry) -> bool:
    """True if a container has something besides the entry. A matcher alone is nothing: it belongs to its hooks."""
    others = [other for other in node.entries if other is not entry]
    return any(other.key not in ("matcher", "sequential") for other in others)


def _find_marked(node: Node, mark: str) -> Iterator[list[tuple[Node, Entry]]]:
    for entry in node.entries:
        inner = entry.node
        texts = (inside.node.value for inside in inner.entries if inside.key is not None)
        if node.opens == "[" and any(isinstance(value, str) and mark in value for value in texts):
            yield [(node, entry)]
        for chain in _find_marked(inner, mark):
            yield [(node, entry), *chain]


def _find(node: Node | None, path: Path) -> Node | None:
    for key in path:
        entry = node.find(key) if node is not None and node.opens == "{" else None
        node = entry.node if entry else None
    return node


def _insert(text: str, node: Node, value: Any, key: str | None) -> str:
    label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    close = node.end - 1
    content_end = len(text[:close].rstrip())
    in_lines = "\n" in text[node.start : node.end] or not node.entries
    last = node.entries[-1] if node.entries else None
    comma = "," if last is not None and last.comma is None else ""
    line = _line_break(text)
    outer = _indent_at(text, node.start)
    indent = _indent_at(text, last.start) if last and "\n" in text[node.start : last.start] else outer + _unit(text)
    if in_lines:
        added, tail = f"{line}{indent}{label}{_dump(text, value, indent)}", f"{line}{outer}"
        if text[content_end:close].count("\n"):
            tail = text[content_end:close]
    else:
        added, tail = f"{' ' if node.opens == '{' or last else ''}{label}{json.dumps(value)}", text[content_end:close]
    comma_at = last.node.end if last else content_end
    return text[:comma_at] + comma + text[comma_at:content_end] + added + tail + text[close:]


def _remove(text: str, node: Node, entry: Entry) -> str:
    start = len(text[: entry.start].rstrip())
    position = node.entries.index(entry)
    before = node.entries[position - 1] if position else None
    end = entry.node.end if entry.comma is None else entry.comma + 1
    if len(node.entries) == 1 and not text[node.start + 1 : start].strip():
        end = node.end - 1 if not text[end : node.end - 1].strip() else end
    elif not _ENDS_LINE.match(text, end):
        # A line comment may stand before the entry: what follows must not become a part of it.
        start = entry.start
    text = text[:start] + text[end:]
    if before is not None and before.comma is not None and entry.comma is None:
        text = text[: before.comma] + text[before.comma + 1 :]
    return text


def _dump(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_line_break(text) + indent).join(lines)


def _line_break(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else _DEFAULT_INDENT


def _indent_at(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip(_BOM)
    return line[: len(line) - len(line.lstrip())]
