"""Embed on this machine with any sentence-transformers model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engrain.core.errors import BackendMissing, EmbedderFailed
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.providers.embedding import check_texts, normalize_rows, split_windows
from engrain.providers.local import QueryCache

if TYPE_CHECKING:
    from engrain.ports import Matrix

DEFAULT_TOKENS = 512


class SentenceTransformersEmbedder:
    """Loads the model when it is first needed, from a folder or from what was downloaded before.

    `download=True` lets it fetch the model. Code that a model brings along is never run. If the model names prompts
    for queries and documents, they are used. Pass `revision` so that vectors of two revisions are kept apart.
    """

    def __init__(
        self, model: str, *, revision: str | None = None, device: str | None = None, download: bool = False
    ) -> None:
        self._name = model
        self._revision = revision
        self._device = device
        self._download = download
        self._lock = threading.RLock()
        self._loaded: Any = None
        self._queries = QueryCache()

    @property
    def model(self) -> EmbeddingModel:
        loaded = self._get_model()
        dimension_of = getattr(loaded, "get_embedding_dimension", None)  # the newer name
        dimension = int(dimension_of() if dimension_of else loaded.get_sentence_embedding_dimension())
        return EmbeddingModel(self._name, self._revision or "", dimension)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        checked = check_texts(texts, kind)
        if kind == "query":
            return self._queries.embed(checked, lambda missing: self._embed(missing, "query"))
        return self._embed(checked, "document")

    def windows(self, text: str) -> list[str]:
        loaded = self._get_model()
        limit = int(loaded.max_seq_length or DEFAULT_TOKENS)
        return split_windows(text, lambda part: len(loaded.tokenizer.tokenize(part)), limit - 2)

    def _embed(self, texts: list[str], kind: EmbedKind) -> Matrix:
        dimension = self.model.dimension
        loaded = self._get_model()
        prompt = kind if kind in (loaded.prompts or {}) else None
        # One call at a time: torch uses all cores for one, and tokenizers of this kind are not safe to share.
        with self._lock:
            rows = loaded.encode(texts, prompt_name=prompt, show_progress_bar=False) if texts else []
        return normalize_rows(rows, len(texts), dimension, self._name)

    def _get_model(self) -> Any:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded

    def _load(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
        except ImportError as exc:
            raise BackendMissing("The sentence-transformers embedder", "sentence-transformers") from exc
        try:
            return SentenceTransformer(
                self._name,
                revision=self._revision,
                device=self._device,
                local_files_only=not self._download,
                trust_remote_code=False,
            )
        except (OSError, ValueError, RuntimeError) as exc:
            hint = "" if self._download else " If it was never downloaded, pass download=True once."
            raise EmbedderFailed(f"sentence-transformers cannot load {self._name!r}: {exc}.{hint}") from exc
