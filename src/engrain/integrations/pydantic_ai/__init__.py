"""Pydantic AI: EngrainConversationStore keeps conversations, RecallFromMemory hands recalled texts to the model."""

from engrain.core.errors import BackendMissing

try:
    import pydantic_ai.conversation_store  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the Pydantic AI integration", "pydantic-ai") from exc

from engrain.integrations.pydantic_ai.conversations import EngrainConversationStore
from engrain.integrations.pydantic_ai.recall import RecallFromMemory

__all__ = ["EngrainConversationStore", "RecallFromMemory"]
