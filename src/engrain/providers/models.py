"""Open a chat model by what a setting says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engrain.core.errors import ConfigError

if TYPE_CHECKING:
    from engrain.ports import Model

KNOWN = ("anthropic", "anthropic:NAME", "openai:NAME", "ollama:NAME")
OLLAMA_URL = "http://localhost:11434/v1"


def open_model(text: str, url: str | None = None) -> Model:
    """`text` is one of KNOWN, "anthropic" alone being its small model; `url` is where the server is, if elsewhere."""
    from engrain.providers.anthropic import SMALL, AnthropicModel
    from engrain.providers.openai_chat import OpenAIModel

    kind, _, name = text.partition(":")
    if kind == "anthropic":
        return AnthropicModel(name or SMALL, base_url=url)
    if kind == "openai" and name:
        return OpenAIModel(name, base_url=url)
    if kind == "ollama" and name:
        return OpenAIModel(name, base_url=url or OLLAMA_URL, api_key="")
    raise ConfigError(f"unknown model {text!r}. Known: {', '.join(KNOWN)}.")
