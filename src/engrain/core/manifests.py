"""The first line of an export: what it is, whose, and how to tell that nothing is missing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engrain.core.errors import InvalidInput, NewerStore
from engrain.core.exporting import EXPORTED, TAG
from engrain.core.scope import Scope

FORMAT = "engrain-export"
VERSION = 1


class Sums:
    """Counts and hashes of lines as they go by, by kind and of all."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._all = _hash()
        self._by: dict[str, Any] = {}

    def add(self, kind: str, raw: bytes) -> None:
        self.rows[kind] = self.rows.get(kind, 0) + 1
        for one in (self._all, self._by.setdefault(kind, _hash())):
            one.update(raw)

    @property
    def hash(self) -> str:
        return str(self._all.hexdigest())

    @property
    def hashes(self) -> dict[str, str]:
        return {kind: one.hexdigest() for kind, one in self._by.items()}


@dataclass(frozen=True, slots=True)
class Manifest:
    """`rows` counts the lines of each kind, `hashes` are theirs and `hash` is that of them all: BLAKE2b of 16 bytes
    over the lines as they stand, line ends included."""

    engrain: str
    scope: Scope
    rows: Mapping[str, int] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    hash: str = ""

    @property
    def line(self) -> dict[str, Any]:
        parts = {"tenant": self.scope.tenant, "agent": self.scope.agent, "user": self.scope.user}
        return {
            TAG: "manifest",
            "format": FORMAT,
            "version": VERSION,
            "engrain": self.engrain,
            "scope": {name: value for name, value in parts.items() if value is not None},
            "rows": dict(self.rows),
            "hashes": dict(self.hashes),
            "hash": self.hash,
        }


def is_manifest(line: object) -> bool:
    return isinstance(line, dict) and line.get(TAG) == "manifest" and line.get("format") == FORMAT


def manifest_of(line: Mapping[str, Any]) -> Manifest:
    version = line.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput(f"version must be a whole number, not {version!r:.80}.")
    if version > VERSION:
        raise NewerStore(f"the export has version {version}; this engrain knows {VERSION}. pip install -U engrain.")
    known = set(Manifest("", Scope()).line)
    if wrong := sorted(set(line) ^ known):
        raise InvalidInput(f"the manifest lacks or does not know {', '.join(wrong)[:200]}.")
    scope = line["scope"]
    if not isinstance(scope, dict) or not set(scope) <= {"tenant", "agent", "user"}:
        raise InvalidInput("scope must be an object with tenant, agent and user.")
    if not all(isinstance(line[name], str) for name in ("engrain", "hash")):
        raise InvalidInput("engrain and hash must be texts.")
    _by_kind(line["rows"], "rows", int)
    _by_kind(line["hashes"], "hashes", str)
    return Manifest(line["engrain"], Scope(**scope), line["rows"], line["hashes"], line["hash"])


def _by_kind(given: object, what: str, wanted: type) -> None:
    if not isinstance(given, dict) or not set(given) <= set(EXPORTED):
        raise InvalidInput(f"{what} must be an object with kinds of rows: {', '.join(EXPORTED)}.")
    if not all(type(one) is wanted for one in given.values()):
        raise InvalidInput(f"{what} must be {'numbers' if wanted is int else 'texts'}.")


def _hash() -> Any:
    return hashlib.blake2b(digest_size=16)
