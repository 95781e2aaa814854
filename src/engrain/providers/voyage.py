"""Embed with Voyage AI."""

from __future__ import annotations

from typing import Any

from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.providers.http import Endpoint, key_or_variable
from engrain.providers.served import ServedEmbedder, ServedModel, chosen_model

VOYAGE_URL = "https://api.voyageai.com/v1"
FIXED_SIZE = frozenset({"voyage-finance-2", "voyage-law-2", "voyage-3", "voyage-3-lite"})

SIZES = {
    "voyage-4-large": 1024,
    "voyage-4": 1024,
    "voyage-4-lite": 1024,
    "voyage-3.5": 1024,
    "voyage-3.5-lite": 1024,
    "voyage-3-large": 1024,
    "voyage-3": 1024,
    "voyage-3-lite": 512,
    "voyage-code-3": 1024,
    "voyage-finance-2": 1024,
    "voyage-law-2": 1024,
}
# Mean and deviation are the usual guess: none of these models was measured here.
KNOWN = {name: ServedModel(EmbeddingModel(name, "", size)) for name, size in SIZES.items()}


class VoyageEmbedder(ServedEmbedder):
    """The key comes from `api_key` or VOYAGE_API_KEY. Voyage itself tells queries from documents."""

    def __init__(
        self,
        model: str | ServedModel = "voyage-4",
        *,
        dimension: int | None = None,
        api_key: str | None = None,
        base_url: str = VOYAGE_URL,
        timeout: float = 30.0,
    ) -> None:
        served = chosen_model(model, KNOWN, dimension)
        key = key_or_variable(api_key, "VOYAGE_API_KEY", "Voyage", required=True)
        super().__init__(
            served, Endpoint("Voyage", base_url.rstrip("/") + "/embeddings", key, "VOYAGE_API_KEY", timeout)
        )

    def _body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model.name, "input": texts, "input_type": kind, "truncation": True}
        if self.model.name not in FIXED_SIZE:
            body["output_dimension"] = self.model.dimension
        return body
