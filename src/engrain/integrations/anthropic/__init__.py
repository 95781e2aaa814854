"""Anthropic: EngrainMemoryTool keeps the files of Claude's memory tool."""

from engrain.core.errors import BackendMissing

try:
    import anthropic.lib.tools  # noqa: F401
except ImportError as exc:
    raise BackendMissing("the Anthropic integration", "anthropic") from exc

from engrain.integrations.anthropic.files import FileVersion
from engrain.integrations.anthropic.tool import AsyncEngrainMemoryTool, EngrainMemoryTool

__all__ = ["AsyncEngrainMemoryTool", "EngrainMemoryTool", "FileVersion"]
