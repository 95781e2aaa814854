"""Microsoft Agent Framework: EngrainHistoryProvider keeps messages, EngrainContextProvider recalls."""

from engrain.core.errors import BackendMissing

try:
    import agent_framework  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the Agent Framework integration", "agent-framework") from exc

from engrain.integrations.agent_framework.context import EngrainContextProvider
from engrain.integrations.agent_framework.history import EngrainHistoryProvider

__all__ = ["EngrainContextProvider", "EngrainHistoryProvider"]
