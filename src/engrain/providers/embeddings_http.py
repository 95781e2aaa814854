"""Embedders behind HTTP services: OpenAI, servers with its protocol, Voyage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.providers.embedding import check_texts, count_bytes, normalize_rows, split_windows
from engrain.providers.http import Endpoint, ServiceError, post, read_key
from engrain.providers.local import QueryCache

if TYPE_CHECKING:
    from engrain.ports.search import Matrix


BATCH_TEXTS = 128
BATCH_BYTES = 200_000
BLANK = "."  # services refuse an empty text


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model of a service. `window` limits the bytes of one text: no tokenizer makes more tokens than bytes.

    The prefixes go before queries and documents, as the model was trained.
    """

    model: EmbeddingModel
    window: int = 8_000
    query_prefix: str = ""
    document_prefix: str = ""


class ServedEmbedder:
    """Embeds with a service and caches queries. Vectors may differ in their last digits from call to call."""

    def __init__(self, served: ServedModel, endpoint: Endpoint) -> None:
        self._served = served
        self._endpoint = endpoint
        self._queries = QueryCache()

    @property
    def model(self) -> EmbeddingModel:
        return self._served.model

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        prepared = [self._prepare(text, kind) for text in check_texts(texts, kind)]
        if kind == "query":
            return self._queries.embed(prepared, lambda missing: self._embed(missing, "query"))
        return self._embed(prepared, "document")

    def windows(self, text: str) -> list[str]:
        return split_windows(text, count_bytes, self._served.window)

    def _prepare(self, text: str, kind: EmbedKind) -> str:
        data = text.encode("utf-8", "replace")[: self._served.window]
        prefix = self._served.query_prefix if kind == "query" else self._served.document_prefix
        return prefix + (data.decode("utf-8", "ignore") if text.strip() else BLANK)

    def _embed(self, texts: list[str], kind: EmbedKind) -> Matrix:
        import numpy as np

        # Batch by batch: numbers of Python would take ten times the memory of the matrix.
        parts = [self._embed_batch(batch, kind) for batch in _batches(texts)]
        return np.concatenate(parts) if parts else np.empty((0, self.model.dimension), np.float32)

    def _embed_batch(self, texts: list[str], kind: EmbedKind) -> Matrix:
        try:
            answer = post(self._endpoint, self._make_body(texts, kind))
        except ServiceError as exc:
            raise EmbedderFailed(str(exc)) from exc
        rows = self._read_rows(answer, len(texts))
        return normalize_rows(rows, len(texts), self.model.dimension, self._endpoint.name)

    def _make_body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        """The request; each service has its own field names."""
        raise NotImplementedError

    def _read_rows(self, answer: Any, count: int) -> list[Any]:
        try:
            rows = {int(entry.get("index", place)): entry["embedding"] for place, entry in enumerate(answer["data"])}
            return [rows[place] for place in range(count)]
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise EmbedderFailed(
                f"{self._endpoint.name} at {self._endpoint.shown} did not return an embedding for each of {count} "
                "texts. Check that the URL belongs to an embeddings service."
            ) from exc


def describe_model(model: str | ServedModel, known: dict[str, ServedModel], dimension: int | None) -> ServedModel:
    """Find a model by name, or take the caller's description; `dimension` overrides the known one."""
    if isinstance(model, ServedModel):
        return model
    found = known.get(model)
    if found is None and dimension is None:
        raise InvalidInput(
            f"the dimension of {model!r} is not known here. Its model card has it: pass dimension=… in Python, or set "
            "dimension = … in the table [embedder] of a settings file."
        )
    found = found or ServedModel(EmbeddingModel(model, "", 0))
    return found if dimension is None else replace(found, model=replace(found.model, dimension=dimension))


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        length = count_bytes(text)
        if batch and (len(batch) >= BATCH_TEXTS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch


OPENAI_URL = "https://api.openai.com/v1"
RESIZABLE = "text-embedding-3-"  # only these accept a dimension

# Means and deviations are guesses: none of these models was measured here.
OPENAI_MODELS = {
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
    """An embedder of OpenAI, or of the server at `base_url`, which needs no key.

    The key is `api_key` or OPENAI_API_KEY, the server `base_url` or OPENAI_BASE_URL.
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
        served = describe_model(model, OPENAI_MODELS, dimension)
        url = (base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL).rstrip("/")
        name = "OpenAI" if url == OPENAI_URL else "The OpenAI-compatible embedder"
        key = read_key(api_key, "OPENAI_API_KEY", name, required=url == OPENAI_URL)
        super().__init__(served, Endpoint(name, url + "/embeddings", key, "OPENAI_API_KEY", timeout))

    def _make_body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model.name, "input": texts, "encoding_format": "float"}
        if self.model.name.startswith(RESIZABLE):
            body["dimensions"] = self.model.dimension
        return body


VOYAGE_URL = "https://api.voyageai.com/v1"
NOT_RESIZABLE = frozenset({"voyage-finance-2", "voyage-law-2", "voyage-3", "voyage-3-lite"})

# Mean and deviation are the usual guess: none of these models was measured here.
VOYAGE_MODELS = {
    name: ServedModel(EmbeddingModel(name, "", 512 if name == "voyage-3-lite" else 1024))
    for name in (
        *("voyage-4-large", "voyage-4", "voyage-4-lite", "voyage-3.5", "voyage-3.5-lite"),
        *("voyage-3-large", "voyage-3", "voyage-3-lite", "voyage-code-3", "voyage-finance-2", "voyage-law-2"),
    )
}


class VoyageEmbedder(ServedEmbedder):
    """An embedder of Voyage. Its key is `api_key` or VOYAGE_API_KEY."""

    def __init__(
        self,
        model: str | ServedModel = "voyage-4",
        *,
        dimension: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        served = describe_model(model, VOYAGE_MODELS, dimension)
        url = (base_url or VOYAGE_URL).rstrip("/")
        key = read_key(api_key, "VOYAGE_API_KEY", "Voyage", required=True)
        super().__init__(served, Endpoint("Voyage", url + "/embeddings", key, "VOYAGE_API_KEY", timeout))

    def _make_body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model.name, "input": texts, "input_type": kind, "truncation": True}
        if self.model.name not in NOT_RESIZABLE:
            body["output_dimension"] = self.model.dimension
        return body
