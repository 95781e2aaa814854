"""A memory on Postgres is loaded, cared for, restored and erased as one in a file is."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from export_kit import exported
from servers import postgres

from engrain import Memory
from engrain.conformance.embedder import HashEmbedder
from engrain.stores.postgres.link import Timed

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
