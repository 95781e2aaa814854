"""LangGraph: EngrainSaver keeps checkpoints."""

from engrain.core.errors import BackendMissing

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the LangGraph integration", "langgraph") from exc

from engrain.integrations.langgraph.saver import EngrainSaver

__all__ = ["EngrainSaver"]
