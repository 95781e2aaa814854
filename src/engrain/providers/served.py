"""An embedder behind an HTTP service that answers as OpenAI's does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.providers.http import Endpoint, ServiceError, post
from engrain.providers.query_cache import QueryCache
from engrain.providers.vectors import checked_texts, unit_rows
from engrain.providers.windows import cut, utf8_size, windows

if TYPE_CHECKING:
    from engrain.ports import Matrix

BATCH_TEXTS = 128
BATCH_BYTES = 200_000
BLANK = "."  # services refuse an empty text


@dataclass(frozen=True, slots=True)
class ServedModel:
    """`window` is the most bytes of one text: no tokenizer makes more tokens than bytes, so it always fits.

    The prefixes are what the model was trained to see in front of a query and of a document.
    """

    model: EmbeddingModel
    window: int = 8_000
    query_prefix: str = ""
    document_prefix: str = ""

    def prefix(self, kind: EmbedKind) -> str:
        return self.query_prefix if kind == "query" else self.document_prefix


class ServedEmbedder:
    """The service's own noise, in the last digits of a vector, is what it is: only queries are remembered."""

    def __init__(self, served: ServedModel, endpoint: Endpoint) -> None:
        self._served = served
        self._endpoint = endpoint
        self._queries = QueryCache()

    @property
    def model(self) -> EmbeddingModel:
        return self._served.model

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        ready = [self._ready(text, kind) for text in checked_texts(texts, kind)]
        if kind == "query":
            return self._queries.embed(ready, lambda missing: self._embed(missing, "query"))
        return self._embed(ready, "document")

    def windows(self, text: str) -> list[str]:
        return windows(text, utf8_size, self._served.window)

    def _ready(self, text: str, kind: EmbedKind) -> str:
        whole = text.encode("utf-8", "replace").decode()
        return self._served.prefix(kind) + (cut(whole, utf8_size, self._served.window) if whole.strip() else BLANK)

    def _embed(self, texts: list[str], kind: EmbedKind) -> Matrix:
        import numpy as np

        dimension = self.model.dimension
        parts = [self._batch(batch, kind) for batch in _batches(texts)]
        return np.concatenate(parts) if parts else np.empty((0, dimension), np.float32)

    def _batch(self, texts: list[str], kind: EmbedKind) -> Matrix:
        try:
            answer = post(self._endpoint, self._body(texts, kind))
        except ServiceError as exc:
            raise EmbedderFailed(str(exc)) from exc
        return unit_rows(self._rows(answer, len(texts)), len(texts), self.model.dimension, self._endpoint.who)

    def _body(self, texts: list[str], kind: EmbedKind) -> dict[str, Any]:
        """What the service is asked; each one has its own words for it."""
        raise NotImplementedError

    def _rows(self, answer: Any, count: int) -> list[Any]:
        try:
            rows = {int(entry.get("index", place)): entry["embedding"] for place, entry in enumerate(answer["data"])}
            return [rows[place] for place in range(count)]
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            raise EmbedderFailed(
                f"{self._endpoint.who} at {self._endpoint.url} did not return one embedding for each of {count} texts. "
                "Check that the URL is that of an embeddings service."
            ) from exc


def chosen_model(model: str | ServedModel, known: dict[str, ServedModel], dimension: int | None) -> ServedModel:
    """The model by its name, or as the caller describes it; `dimension` overrides what is known of a name."""
    if isinstance(model, ServedModel):
        return model
    found = known.get(model)
    if found is None and dimension is None:
        raise InvalidInput(
            f"how long the vectors of {model!r} are is not known here. Say it as its model card does: dimension=… in "
            "Python, or dimension = … in the table [embedder] of a settings file."
        )
    if found is None or dimension is not None:
        found = found or ServedModel(EmbeddingModel(model, "", 0))
        size = found.model.dimension if dimension is None else dimension
        described = EmbeddingModel(model, "", size, found.model.floor, found.model.mean, found.model.deviation)
        found = ServedModel(described, found.window, found.query_prefix, found.document_prefix)
    return found


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        length = utf8_size(text)
        if batch and (len(batch) >= BATCH_TEXTS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += length
    if batch:
        yield batch
