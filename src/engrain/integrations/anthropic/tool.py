"""EngrainMemoryTool: Claude's memory tool over a memory, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from engrain.core.errors import EngrainError
from engrain.integrations.anthropic.files import MemoryFiles
from engrain.integrations.memory_owners import AnyMemory

Answer = TypeVar("Answer")


class EngrainMemoryTool(BetaAbstractMemoryTool):
    """Claude's memory tool for client.beta.messages.tool_runner(tools=[…]), with its files in a memory.

        tool = EngrainMemoryTool(store.memory(user="ana"))

    `files.list_versions(path)` has the earlier contents of a file.
    """

    def __init__(self, memory: AnyMemory, **options: Any) -> None:
        super().__init__(**options)
        self.files = MemoryFiles(memory)

    def view(self, command: Any) -> str:
        return _answer(lambda: self.files.view(command.path, command.view_range))

    def create(self, command: Any) -> str:
        return _answer(lambda: self.files.create(command.path, command.file_text))

    def str_replace(self, command: Any) -> str:
        return _answer(lambda: self.files.str_replace(command.path, command.old_str, command.new_str or ""))

    def insert(self, command: Any) -> str:
        return _answer(lambda: self.files.insert(command.path, command.insert_line, command.insert_text))

    def delete(self, command: Any) -> str:
        return _answer(lambda: self.files.delete(command.path))

    def rename(self, command: Any) -> str:
        return _answer(lambda: self.files.rename(command.old_path, command.new_path))

    def clear_all_memory(self) -> str:
        return self.files.clear()


class AsyncEngrainMemoryTool(BetaAsyncAbstractMemoryTool):
    """EngrainMemoryTool for the async client: each command runs on a thread."""

    def __init__(self, memory: AnyMemory, **options: Any) -> None:
        super().__init__(**options)
        self._tool = EngrainMemoryTool(memory, **options)
        self.files = self._tool.files

    async def execute(self, command: Any) -> Any:
        return await asyncio.to_thread(self._tool.execute, command)

    async def _execute(self, command: Any) -> Any:
        return await self.execute(command)

    view = create = str_replace = insert = delete = rename = _execute

    async def clear_all_memory(self) -> str:
        return await asyncio.to_thread(self.files.clear)


def _answer(do: Callable[[], Answer]) -> Answer:
    """Tell the model what was wrong with its input."""
    try:
        return do()
    except EngrainError as exc:
        raise ToolError(str(exc)) from exc
