"""Embed on this machine: with all-MiniLM-L6-v2, which is given English words, or with sentence-transformers."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from engrain.core.errors import BackendMissing, EmbedderFailed
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.core.text.english_words import hash_words, read_in_english
from engrain.providers.embedding import call_after_fork, check_texts, normalize_rows, split_windows
from engrain.providers.wordpiece import WordPiece

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from engrain.ports.search import Matrix


MAX_QUERIES = 1_024
# The states of the words after the second, fourth and sixth layer.
STATES = ("layernormalization_80", "layernormalization_148", "layernormalization_216")
_WORD = re.compile(r"\S+")
R = TypeVar("R")


class QueryCache:
    """Caches the vectors of the latest queries. Thread-safe; its rows are read-only."""

    def __init__(self, size: int = MAX_QUERIES) -> None:
        self._size = size
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        self._rows: OrderedDict[str, Matrix] = OrderedDict()
        self._lock = threading.Lock()

    def embed(self, texts: list[str], embed: Callable[[list[str]], Matrix]) -> Matrix:
        import numpy as np

        found = self._get(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing or not texts:
            rows = embed(missing)
            if not texts:
                return rows
            found.update(zip(missing, rows, strict=True))
            self._put(missing, found)
        matrix = np.stack([found[text] for text in texts])
        matrix.setflags(write=False)
        return matrix

    def _get(self, texts: list[str]) -> dict[str, Matrix]:
        with self._lock:
            found = {text: self._rows[text] for text in texts if text in self._rows}
            for text in found:
                self._rows.move_to_end(text)
        return found

    def _put(self, texts: list[str], found: dict[str, Matrix]) -> None:
        with self._lock:
            for text in texts[-self._size :]:
                # A copy: a row of a large batch would keep the whole batch in memory.
                self._rows[text] = found[text].copy()
                self._rows[text].setflags(write=False)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)


MAX_WORD_BYTES = 32_000_000


class WordCache:
    """Caches the vectors of the words of the latest texts, in half precision, without the texts. Thread-safe."""

    def __init__(self, size: int = MAX_WORD_BYTES) -> None:
        self._size = size
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        self._rows: OrderedDict[bytes, npt.NDArray[np.float16]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], limit: int, embed: Callable[[list[str]], list[Matrix]]) -> list[Matrix]:
        keys = {text: hashlib.blake2b(f"{limit} {text}".encode("utf-8", "replace")).digest() for text in texts}
        with self._lock:
            found = {text: self._rows[key] for text, key in keys.items() if key in self._rows}
            for text in found:
                self._rows.move_to_end(keys[text])
        missing = [text for text in keys if text not in found]
        if missing:
            new = dict(zip(missing, (rows.astype("f2") for rows in embed(missing)), strict=True))
            self._put({keys[text]: rows for text, rows in new.items()})
            found |= new
        return [found[text].astype("f4") for text in texts]

    def _put(self, new: dict[bytes, npt.NDArray[np.float16]]) -> None:
        with self._lock:
            for key in new.keys() - self._rows.keys():
                self._rows[key] = new[key]
                self._bytes += new[key].nbytes
            while self._bytes > self._size:
                self._bytes -= self._rows.popitem(last=False)[1].nbytes


REINSTALL = 'Run: pip install --force-reinstall --no-deps "engrain-minilm>=1.0,<2".'
# Larger batches are slower, because they no longer fit the cache: 7.0 ms of CPU a text at 384, 12.9 at 4,096.
BATCH_PIECES = 384
MAX_WORKERS = 4
# Over 20 questions and 40 facts of everyday life: wrong pairs have cosine .05 ± .085, and 19 in 20 of them less than
# .21; the weakest right pair has .23.
FLOOR, MEAN, DEVIATION = 0.2, 0.05, 0.085

Batch = list[tuple[int, list[int]]]


class LocalEmbedder:
    """Loads the model at the first call. May be shared by threads, and used on both sides of a fork."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or min(MAX_WORKERS, _count_processors())
        self._queries = QueryCache()
        self._words = WordCache()
        self._reset()
        call_after_fork(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._engine: _Engine | None = None

    @property
    def model(self) -> EmbeddingModel:
        weights = _import_weights()
        return EmbeddingModel(weights.NAME, _hash_model(), weights.DIMENSION, FLOOR, MEAN, DEVIATION)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        checked = check_texts(texts, kind)
        return self._queries.embed(checked, self._embed) if kind == "query" else self._embed(checked)

    def windows(self, text: str) -> list[str]:
        engine = self._load()
        return split_windows(text, engine.count, engine.limit - 2)

    def read_text(self, text: str) -> WordStates:
        """Run the model once over a text, for its vector and those of its parts."""
        return self._load().read(text)

    def embed_parts(self, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[Matrix]:
        """Return for each text its vector, then one for each span: the mean of the states of its words."""
        import numpy as np

        engine = self._load()
        passed = self._run(list(dict.fromkeys(texts)), engine.limit)
        parts = []
        for text, some in zip(texts, spans, strict=True):
            _, starts = engine.encode(text, engine.limit)
            rows = [passed[text].average(starts, span) for span in some]
            parts.append(np.stack([passed[text].vector, *map(_normalize, rows)]))
        return parts

    def embed_words(self, texts: Sequence[str], limit: int) -> list[Matrix]:
        return self._words.embed(texts, limit, lambda missing: self._embed_words(missing, limit))

    def _embed_words(self, texts: list[str], limit: int) -> list[Matrix]:
        found = self._run(texts, min(limit + 2, self._load().limit))
        return [_normalize(found[text].states) for text in texts]

    def _embed(self, texts: list[str]) -> Matrix:
        import numpy as np

        result = np.empty((len(texts), _import_weights().DIMENSION), np.float32)
        if not texts:
            return result
        engine = self._load()
        batches = list(_group_batches([engine.encode(text, engine.limit)[0] for text in texts]))
        for batch, rows in zip(batches, _run_batches(engine.run, batches, self._workers), strict=True):
            result[[place for place, _ in batch]] = rows
        return result

    def _run(self, texts: list[str], limit: int) -> dict[str, _Pass]:
        """Return the vector of each text, and the states of its first pieces."""
        engine = self._load()
        batches = list(_group_batches([engine.encode(text, limit)[0] for text in texts]))
        done: dict[str, _Pass] = {}
        for batch, some in zip(batches, _run_batches(engine.run_states, batches, self._workers), strict=True):
            done |= {texts[place]: one for (place, _), one in zip(batch, some, strict=True)}
        return done

    def _load(self) -> _Engine:
        engine = self._engine
        if engine is None:
            with self._lock:
                engine = self._engine = self._engine or _Engine()
        return engine


class _Pass(NamedTuple):
    """A text's vector, and the last states of its pieces without the two marks around them."""

    vector: Matrix
    states: Matrix

    def average(self, starts: npt.NDArray[np.int64], span: tuple[int, int]) -> Matrix:
        """Return the mean state of a span's words, or the text's vector if they are beyond the model's limit."""
        starts = starts[: len(self.states)]
        inside = (starts >= span[0]) & (starts < span[1])
        mean: Matrix = self.states[inside].mean(axis=0) if inside.any() else self.vector
        return mean


class _Engine:
    """A loaded model. It runs in the calling thread: onnxruntime's own threads do not survive a fork, and a child would
    wait for them forever at its end."""

    def __init__(self) -> None:
        weights = _import_weights()
        vocabulary = _read_verified(weights.VOCABULARY, weights.VOCABULARY_SHA256).decode()
        self._tokenizer = WordPiece(vocabulary.removesuffix("\n").split("\n"))
        self.limit: int = weights.MAX_PIECES
        self._session = _open_session(_name_outputs(_read_verified(weights.MODEL, weights.MODEL_SHA256), STATES))

    def run(self, batch: Batch) -> Matrix:
        rows: Matrix = self._session.run(["embedding"], self._pad(batch))[0]
        return rows

    def run_states(self, batch: Batch) -> list[_Pass]:
        vectors, states = self._session.run(["embedding", STATES[-1]], self._pad(batch))
        # Copies: a view would keep the states of the whole batch in memory.
        return [
            _Pass(vectors[row].copy(), states[row, 1 : len(pieces) - 1].copy()) for row, (_, pieces) in enumerate(batch)
        ]

    def encode(self, text: str, limit: int) -> tuple[list[int], npt.NDArray[np.int64]]:
        """Return the ids that the model reads, and for each one between the two marks where its word starts."""
        import numpy as np

        ids: list[int] = []
        starts: list[int] = []
        for piece in read_in_english(text):
            if len(ids) >= limit - 2:
                break
            for start, word in ((0, piece.text),) if piece.is_translated else _split_words(piece.text):
                found = self._tokenizer.pieces(word)
                ids += found
                starts += [piece.start + start] * len(found)
                if len(ids) >= limit - 2:
                    break
        return self._tokenizer.add_marks(ids[: limit - 2]), np.array(starts[: limit - 2], np.int64)

    def count(self, text: str) -> int:
        """Return the number of word pieces, without the two marks."""
        return sum(self._tokenizer.count(piece.text) for piece in read_in_english(text))

    def _pad(self, batch: Batch) -> dict[str, npt.NDArray[np.int64]]:
        import numpy as np

        longest = max(len(pieces) for _, pieces in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, (_, pieces) in enumerate(batch):
            ids[row, : len(pieces)] = pieces
            mask[row, : len(pieces)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def read(self, text: str) -> WordStates:
        import numpy as np

        pieces, starts = self.encode(text, self.limit)
        starts = np.append(-1, starts)
        found = self._session.run(None, self._pad([(0, pieces)]))
        return WordStates(text, found[0][0], starts, [states[0] for states in found[1:]])


@dataclass(frozen=True, slots=True, eq=False)
class WordStates:
    """The states of the words of a text. Words beyond the limit of the model have none."""

    text: str
    vector: Matrix
    starts: Any  # where the word of each piece begins; -1 for the mark before the first
    layers: list[Matrix]

    def pool_spans(self, spans: Sequence[tuple[int, int]]) -> Matrix:
        """Return a row for each span: means and maxima of the states of its words in three layers."""
        import numpy as np

        layers = np.stack(self.layers)
        rows = np.zeros((len(spans), len(layers), 2, layers.shape[-1]), np.float32)
        for row, span in zip(rows, spans, strict=True):
            inside = self._find_pieces(span)
            if len(inside):
                words = layers[:, inside]
                words.mean(1, out=row[:, 0])
                words.max(1, out=row[:, 1])
        return rows.reshape(len(spans), -1)

    def embed_spans(self, spans: Sequence[tuple[int, int]]) -> Matrix:
        import numpy as np

        rows = np.tile(self.vector, (len(spans), 1))
        for row, span in zip(rows, spans, strict=True):
            inside = self._find_pieces(span)
            if 0 < len(inside) < len(self.starts) - 1:
                row[:] = self.layers[-1][inside].mean(0)
                row /= np.linalg.norm(row)
        return rows

    def _find_pieces(self, span: tuple[int, int]) -> Any:
        return ((self.starts >= span[0]) & (self.starts < span[1])).nonzero()[0]


@cache
def local_embedder() -> LocalEmbedder:
    """The embedder that all memories of the process share."""
    return LocalEmbedder()


def _group_batches(texts: list[list[int]]) -> Iterator[Batch]:
    """(place, pieces) of all texts; texts of similar length together, so that little padding is computed."""
    batch: Batch = []
    for place in sorted(range(len(texts)), key=lambda place: len(texts[place])):
        if batch and (len(batch) + 1) * len(texts[place]) > BATCH_PIECES:
            yield batch
            batch = []
        batch.append((place, texts[place]))
    if batch:
        yield batch


def _normalize(rows: Matrix) -> Matrix:
    import numpy as np

    unit: Matrix = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-9)
    return unit


def _run_batches(run: Callable[[Batch], R], batches: list[Batch], workers: int) -> Iterator[R]:
    if len(batches) < 2 or workers == 1:
        yield from map(run, batches)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(workers, len(batches)), thread_name_prefix="engrain-embed") as pool:
        yield from pool.map(run, batches)


def _split_words(text: str) -> Iterator[tuple[int, str]]:
    return ((match.start(), match[0]) for match in _WORD.finditer(text))


@cache
def _hash_model() -> str:
    """Return the hash of the weights and of the words that are read in English: both decide the vectors."""
    return hashlib.sha256(f"{_import_weights().MODEL_SHA256} {hash_words()}".encode()).hexdigest()


@cache
def _import_weights() -> ModuleType:
    try:
        import engrain_minilm
    except ImportError as exc:
        raise EmbedderFailed(f"The weights of the local embedder are not installed. {REINSTALL}") from exc
    return engrain_minilm


def _read_verified(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise EmbedderFailed(f"The local embedder cannot read {path}: {exc.strerror}. {REINSTALL}") from exc
    if hashlib.sha256(data).hexdigest() != sha256:
        raise EmbedderFailed(f"{path} is not the published file: its sha256 differs. {REINSTALL}")
    return data


def _name_outputs(model: bytes, names: Sequence[str]) -> bytes:
    """Return an ONNX model that also returns inner values.

    A message of Protocol Buffers merges with what is appended to it: field 7 is the graph, 12 its outputs, 1 the name.
    """

    def encode(field: int, content: bytes) -> bytes:
        size = len(content)
        length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        return bytes([field << 3 | 2]) + length + content

    return model + encode(7, b"".join(encode(12, encode(1, name.encode())) for name in names))


def _open_session(model: bytes) -> Any:
    # Official builds since 1.29 send telemetry when they are imported, unless this is set before.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as exc:
        raise EmbedderFailed(f"onnxruntime cannot be loaded: {exc}. Run: pip install onnxruntime.") from exc
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.disable_quant_qdq", "1")  # unpack the int8 weights once, at load
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # its errors have no common root
        raise EmbedderFailed(f"onnxruntime {onnxruntime.__version__} cannot load the model: {exc}") from exc


def _count_processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
