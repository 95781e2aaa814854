"""EngrainMemoryBlock: the long-term memory of a LlamaIndex agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from engrain.core.errors import BackendMissing
from engrain.integrations.chat_log import keep_words, recall_block
from engrain.integrations.memory_owners import open_memory
from engrain.memory.memory import Memory

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.memory import BaseMemoryBlock
    from pydantic import BeforeValidator, Field
except ImportError as exc:
    raise BackendMissing("the LlamaIndex integration", "llama-index") from exc

_SESSION = "session_id"  # Memory puts the session of a message here
_WITHOUT_SESSION = "llama-index"


class EngrainMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):
    """A memory block for Memory.from_defaults(memory_blocks=[…]).

        block = EngrainMemoryBlock(memory=store.memory(user="ana"))

    Messages that leave the short-term memory go to the log of their session, so that recall finds them in later
    sessions too. Recalled texts are a message of the user, quoted with their sources, and never part of the system
    message.
    """

    name: str = Field(default="engrain", description="The name of the memory block.")
    memory: Annotated[Memory, BeforeValidator(open_memory)] = Field(description="The memory of one user.", exclude=True)
    n: int = Field(default=5, description="How many texts are recalled at most.")
    budget: int | None = Field(default=1_000, description="The tokens that recalled texts have at most.")

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> list[ChatMessage]:
        asked = [text for one in messages or () if one.role == MessageRole.USER and (text := one.content)]
        recalled = await asyncio.to_thread(recall_block, self.memory, asked[-1], self.n, self.budget) if asked else ""
        return [ChatMessage(role=MessageRole.USER, content=recalled)] if recalled else []

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await asyncio.to_thread(self._keep, messages)

    def _keep(self, messages: Iterable[ChatMessage]) -> None:
        for message in messages:
            session = str(message.additional_kwargs.pop(_SESSION, None) or _WITHOUT_SESSION)
            keep_words(self.memory, message.role.value, message.content or "", session=session)
