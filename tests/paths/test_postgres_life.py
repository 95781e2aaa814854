"""A memory on Postgres is loaded, cared for, restored and erased as one in a file is."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from export_kit import exported
from servers import postgres

from engrain import Memory, replay_erasures
from engrain.conformance.embedder import HashEmbedder
from engrain.conformance.moving import dumped
from engrain.lifecycle.copying import copy
from engrain.stores.postgres.link import Timed
from engrain.wiring import open_movable

_numbers = count()


@pytest.fixture
def url() -> Iterator[str]:
    schema = f"life_{next(_numbers)}"
    yield f"{postgres().url()}?schema={schema}"
    postgres().run(f"drop schema if exists {schema} cascade")


def opened(store: str, **options: str) -> Memory:
    return Memory(store, **{"user": "ana", "background": False, "embedder": HashEmbedder(), **options})  # type: ignore[arg-type]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that went to the server."""
    seen: list[str] = []
    execute = Timed.execute

    def counted(self: Timed, query: bytes, *args: object, **kwargs: object) -> object:
        seen.append(query.decode() if isinstance(query, bytes) else str(query))
        return execute(self, query, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Timed, "execute", counted)
    return seen


# Many rows


@pytest.mark.parametrize("vectors", [False, True])
def test_a_load_goes_to_the_server_in_a_few_statements(
    url: str, tmp_path: Path, sent: list[str], vectors: bool
) -> None:
    with opened(str(tmp_path / "source.db")) as source:
        source.remember_many([{"text": f"Ana has read book {n}.", "metadata": {"n": n}} for n in range(300)])
        source.relate("Ana", "knows", "Ben")
        source.forget(source.remember("A secret."))
        source.export(tmp_path / "out.jsonl", vectors=vectors)
        raw = exported(source)
    with opened(url) as there:
        sent.clear()
        assert there.load(tmp_path / "out.jsonl").added > 300
        assert len(sent) < 200
        assert exported(there) == raw
        assert there.load(io.BytesIO(raw)).added == 0


# Set back by other means


KILLED = """
import os, signal, sys
from engrain import replay_erasures
from engrain.lifecycle.erasure import replay
from engrain.stores.postgres.audit import PostgresAudit
from engrain.stores.sqlite.audit import SqliteAudit

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

at, restored, present = sys.argv[1:]
if at == "log":
    PostgresAudit.append = SqliteAudit.append = die
else:
    setattr(replay, at, die)
replay_erasures(restored, present)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_replay_that_is_killed_has_done_nothing_and_is_done_again(kind: str, url: str, tmp_path: Path) -> None:
    present, restored = str(tmp_path / "present.db"), url if kind == "postgres" else str(tmp_path / "restored.db")
    with opened(present) as memory:
        gone, stays = (memory.remember("Ana lives in Lima.", occurred_at=f"{year}-01-01") for year in (2020, 2021))
        with closing(open_movable(restored)) as back, closing(open_movable(present)) as there:
            copy(there, back, lambda _: None)
        memory.forget(gone)
    with closing(open_movable(restored)) as back:
        before = dumped(back)
    for at in ("_put_back", "_carry", "log"):
        done = subprocess.run([sys.executable, "-c", KILLED, at, restored, present], check=False)
        assert done.returncode == -signal.SIGKILL
        with closing(open_movable(restored)) as back:
            assert dumped(back) == before, f"killed at {at}"
    assert replay_erasures(restored, present).rows["item"] == 1
    with opened(restored) as memory:
        assert [item.id for item in memory.list()] == [stays]
        assert [one.what for one in memory.audit()] == ["forget", "restore"]
        assert memory.verify_audit()
