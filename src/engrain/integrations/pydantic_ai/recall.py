"""RecallFromMemory: a capability of Pydantic AI that hands recalled texts to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from engrain.integrations.chat_log import keep_words, recall_block
from engrain.integrations.memory_owners import AnyMemory, open_memory


@dataclass
class RecallFromMemory(AbstractCapability[Any]):
    """Recalls for the user's prompt, and keeps the prompt and the answer in the log.

        agent = Agent(model, capabilities=[RecallFromMemory(store.memory(user="ana"))])

    Recalled texts go into the request as a part of the user's message, quoted with their sources, and never into the
    instructions or the stored history. With `remember=False` nothing is kept.
    """

    memory: AnyMemory
    n: int = 5
    budget: int | None = 1_000
    remember: bool = True

    def __post_init__(self) -> None:
        self._opened = open_memory(self.memory)

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        messages = await asyncio.to_thread(self._add_recalled, request_context.messages)
        return replace(request_context, messages=messages)

    async def after_run(self, ctx: Any, *, result: Any) -> Any:
        if self.remember:
            session = result.conversation.conversation_id
            await asyncio.to_thread(self._keep, session, ctx.prompt, result.output)
        return result

    def _add_recalled(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        place = next((n for n in range(len(messages) - 1, -1, -1) if _find_prompt(messages[n])), None)
        if place is None:
            return messages
        request = messages[place]
        recalled = recall_block(self._opened, _find_prompt(request), self.n, self.budget)
        if not recalled:
            return messages
        part = UserPromptPart(content=recalled)
        return [*messages[:place], replace(request, parts=[part, *request.parts]), *messages[place + 1 :]]

    def _keep(self, session: str, prompt: Any, output: Any) -> None:
        keep_words(self._opened, "user", _join_texts(prompt), session=session)
        keep_words(self._opened, "assistant", output if isinstance(output, str) else "", session=session)


def _find_prompt(message: ModelMessage) -> str:
    """Return the words of the user in a message."""
    if not isinstance(message, ModelRequest):
        return ""
    return "\n".join(_join_texts(part.content) for part in message.parts if isinstance(part, UserPromptPart)).strip()


def _join_texts(content: str | Sequence[Any] | None) -> str:
    """Return the words of a prompt, which may have images and documents among them."""
    return content if isinstance(content, str) else "\n".join(one for one in content or () if isinstance(one, str))
