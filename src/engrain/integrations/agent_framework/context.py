"""EngrainContextProvider: recalls for an agent of Microsoft Agent Framework, and keeps what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from agent_framework import ContextProvider, Message

from engrain.integrations.chat_log import keep_words, recall_block
from engrain.integrations.memory_owners import AnyMemory, open_memory


class EngrainContextProvider(ContextProvider):
    """A context provider for Agent(context_providers=[…]).

        provider = EngrainContextProvider(store.memory(user="ana"))

    Recalled texts are a message of their own in front of the user's, quoted with their sources, and never instructions.
    The words of user and assistant go to the log of the session; with `remember=False` nothing is kept.
    """

    def __init__(
        self,
        memory: AnyMemory,
        source_id: str = "engrain",
        *,
        n: int = 5,
        budget: int | None = 1_000,
        remember: bool = True,
    ) -> None:
        super().__init__(source_id)
        self._memory, self._n, self._budget, self._remember = open_memory(memory), n, budget, remember

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        asked = "\n".join(message.text for message in context.input_messages if message.role == "user")
        recalled = await asyncio.to_thread(recall_block, self._memory, asked, self._n, self._budget)
        if recalled:
            context.extend_messages(self, [Message("user", [recalled])])

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        if self._remember:
            answered = context.response.messages if context.response else []
            said = [*context.input_messages, *answered]
            await asyncio.to_thread(self._keep, context.session_id or self.source_id, said)

    def _keep(self, session: str, messages: Iterable[Message]) -> None:
        for message in messages:
            keep_words(self._memory, message.role, message.text, session=session)
