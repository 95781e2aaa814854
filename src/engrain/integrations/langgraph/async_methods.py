"""The async methods of a checkpointer whose other methods block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple


def _run_on_thread(method: str) -> Any:
    async def call(self: Any, *args: Any, **named: Any) -> Any:
        return await asyncio.to_thread(getattr(self, method), *args, **named)

    return call


class ThreadedSaver(BaseCheckpointSaver[str]):
    """Each async method runs the blocking one on a thread."""

    aget_tuple = _run_on_thread("get_tuple")
    aput = _run_on_thread("put")
    aput_writes = _run_on_thread("put_writes")
    adelete_thread = _run_on_thread("delete_thread")
    adelete_for_runs = _run_on_thread("delete_for_runs")
    acopy_thread = _run_on_thread("copy_thread")
    aprune = _run_on_thread("prune")

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one
