"""The awaited face does what the other one does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engrain import AsyncMemory, Memory, StoreClosed


def test_the_verbs_are_awaited(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncMemory(tmp_path / "a.db", user="ana") as memory:
            item = await memory.remember("Ana prefers Python over JavaScript.")
            found = await memory.recall("Which language should the example use?")
            assert [hit.item.id for hit in found.hits] == [item]
            assert (await memory.get(item)).access_count == 1
        with pytest.raises(StoreClosed):
            await memory.remember("too late")

    asyncio.run(scene())


def test_many_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with AsyncMemory(tmp_path / "a.db", user="ana") as memory:
            ids = await asyncio.gather(*(memory.remember(f"fact {n}") for n in range(50)))
            assert len(set(ids)) == 50

    asyncio.run(scene())
    with Memory(tmp_path / "a.db", user="ana") as memory:
        assert len(memory.list()) == 50
