"""Google ADK: EngrainSessionService keeps sessions, EngrainMemoryService remembers and searches them."""

from engrain.core.errors import BackendMissing

try:
    import google.adk.sessions  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the Google ADK integration", "google-adk") from exc

from engrain.integrations.google_adk.memories import EngrainMemoryService
from engrain.integrations.google_adk.sessions import EngrainSessionService

__all__ = ["EngrainMemoryService", "EngrainSessionService"]
