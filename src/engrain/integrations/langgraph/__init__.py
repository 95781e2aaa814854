"""LangGraph: EngrainSaver keeps checkpoints, EngrainStore long-term values."""

from engrain.core.errors import BackendMissing

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the LangGraph integration", "langgraph") from exc

from engrain.integrations.langgraph.saver import EngrainSaver
from engrain.integrations.langgraph.store import EngrainStore

__all__ = ["EngrainSaver", "EngrainStore"]
