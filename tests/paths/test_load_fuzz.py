"""Files that were changed at random: refused or loaded whole, never a crash, and what they bring in can be used."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from export_kit import body, exported, filled

from engrain import EngrainError, Memory
from engrain.core.formats.manifests import LineSums

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 2**53, 2**63, 2**70, -0.0, 0.5, 1e308, "", " ", "x", "#0", "\x00", "\ud800",
    "2026-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "0001-01-01", "[forgotten]", "a" * 600, [], [[]], [None],
    {}, {"engrain": {}}, {"engrain": {"steps": 7, "own": -1, "size": 0, "calls": [[1]]}}, {"a": {"b": [1]}}, "item",
    "message", "procedure", "running", "procedure:deploy", "session:monday", "user.city", "monday", "order",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> bytes:
    clock = SetClock()
    with Memory("reference://", user="ana", clock=clock, background=False, embedder=HashEmbedder()) as memory:
        return exported(filled(memory, clock))


def fuzzed(raw: bytes, rng: random.Random) -> bytes:
    """Bytes changed as they are, or values changed under right counts and hashes, which is what gets further."""
    if rng.random() < 0.25:
        changed = bytearray(raw)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(changed))
            changed[at : at + rng.choice((0, 1, 1, 20))] = rng.randbytes(rng.choice((0, 1, 1, 3)))
        return bytes(changed)
    lines = [json.loads(line) for line in raw.splitlines()]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change(lines, rng)
    rows = []
    for line in lines[1:]:
        rows.append((str(line.get("row")), json.dumps(line).encode() + b"\n"))
    sums = LineSums()
    for kind, row in rows:
        sums.add(kind, row)
    if rng.random() < 0.95:
        lines[0] |= {"rows": sums.rows, "hashes": sums.hashes, "hash": sums.hash}
    return json.dumps(lines[0]).encode() + b"\n" + b"".join(row for _, row in rows)


def _change(lines: list[dict[str, Any]], rng: random.Random) -> None:
    at = rng.randrange(len(lines))
    line, what = lines[at], rng.random()
    if what < 0.1:
        lines.insert(rng.randrange(1, len(lines) + 1), dict(line))
    elif what < 0.2 and at:
        del lines[at]
    elif what < 0.6:
        line[rng.choice([*line, "color"])] = rng.choice(ODD)
    else:
        # The value of another line: of the right type, and in the wrong place.
        name = rng.choice([*line])
        others = [one[name] for one in lines if name in one]
        line[name] = rng.choice(others)


def used(memory: Memory) -> None:
    """Whatever came in, every verb still answers."""
    memory.recall("Ana tea city")
    items = memory.list(history=True, limit=999)
    for item in items[:40]:
        memory.explain(item.id)
    for session in memory.sessions.list(99):
        memory.sessions.messages(session.session, 50)
    memory.episodic.recent(99)
    for name in memory.procedural.names():
        memory.procedural.versions(name)
    for task in memory.tasks.list():
        memory.tasks.timeline(task.task)
    memory.slots.list()
    memory.store.status(memory.scope)
    memory.remember("Something new.")
    memory.add_message("user", "Something new.", session="monday")
    assert all(one.state != "fail" for one in memory.store.services.items.check())


def tried(raw: bytes, number: int, tmp_path: Any) -> bool:
    rng = random.Random(number)
    given = fuzzed(raw, rng)
    store = f"{tmp_path}/{number}.db" if number % 10 == 0 else "reference://"
    with Memory(store, user="ana", clock=SetClock(), background=False, embedder=HashEmbedder()) as memory:
        try:
            memory.load(io.BytesIO(given), format="engrain")
        except EngrainError:
            assert body(exported(memory)) == b"", number
            return False
        out = exported(memory)
        with Memory("reference://", user="ana", clock=SetClock(), background=False, embedder=HashEmbedder()) as other:
            other.load(io.BytesIO(out))
            assert exported(other) == out, number
        used(memory)
        return True


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
def test_a_changed_file_never_crashes_and_never_half_loads(whole: bytes, count: int, tmp_path: Any) -> None:
    taken = sum(tried(whole, number, tmp_path) for number in range(count))
    # Some changes are harmless; a fuzzer that gets nothing in, or everything, tests nothing.
    assert 0 < taken < 0.6 * count


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100))
def test_ten_thousand_changed_files(whole: bytes, part: int, tmp_path: Any) -> None:
    for number in range(1_000 + part * 100, 1_000 + part * 100 + 100):
        tried(whole, number, tmp_path)
