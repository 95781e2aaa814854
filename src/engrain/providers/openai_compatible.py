"""Embed with OpenAI, or with anything that speaks its protocol: Ollama, vLLM, LM Studio, a gateway."""

from __future__ import annotations

import os
from typing import Any

from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.providers.http import Endpoint, key_or_variable
from engrain.providers.served import ServedEmbedder, ServedModel, chosen_model

OPENAI_URL = "https://api.openai.com/v1"
SHORTENED = "text-embedding-3-"  # only these take a wish for fewer dimensions

# Means and deviations are guesses: none of these models was measured here.
KNOWN = {
    served.model.name: served
    for served in (
        ServedModel(EmbeddingModel("text-embedding-3-small", "", 1536)),
        ServedModel(EmbeddingModel("text-embedding-3-large", "", 3072)),
        ServedModel(EmbeddingModel("text-embedding-ada-002", "", 1536, mean=0.71, deviation=0.03)),
        ServedModel(
            EmbeddingModel("nomic-embed-text", "", 768, mean=0.4, deviation=0.08),
            query_prefix="search_query: ",
            document_prefix="search_document: ",
        ),
        # Reads 512 tokens, of about four bytes; its servers cut what is longer.
        ServedModel(
            EmbeddingModel("mxbai-embed-large", "", 1024, mean=0.35, deviation=0.08),
            window=1_600,
            query_prefix="Represent this sentence for searching relevant passages: ",
        ),
        ServedModel(EmbeddingModel("bge-m3", "", 1024, mean=0.35, deviation=0.08)),
    )
}


class OpenAIEmbedder(ServedEmbedder):
    """Give `base_url` for another server than OpenAI's; a key is then sent only if there is one.

    The key comes from `api_key` or OPENAI_API_KEY, the server from `base_url` or OPENAI_BASE_URL.
    """

    def __init__(
        self,
        model: str | ServedModel = "text-embedding-3-small",
        *,
        dimension: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        served = chosen_model(model, KNOWN, dimension)
        url = (base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL).rstrip("/")
        who = "OpenAI" if url == OPENAI_URL else "The OpenAI-compatible embedder"
        key = key_or_variable(api_key, "OPENAI_API_KEY", who, required=url == OPENAI_URL)
        super().__init__(served, Endpoint(who, url + "/embeddings", key, "OPENAI_API_KEY", timeout))

    def _body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model.name, "input": texts, "encoding_format": "float"}
        if self.model.name.startswith(SHORTENED):
            body["dimensions"] = self.model.dimension
        return body
