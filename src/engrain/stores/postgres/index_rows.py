"""Write the rows that search reads: the words of items, and their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import Vectors, Words
from engrain.stores.postgres.adapters import BigintArray, IntegerArray, RealArray
from engrain.stores.relational.dialect import ScopeKey, Transaction
from engrain.stores.relational.vectors import stack_windows

_BATCH = 500  # vectors of one statement
Models = Mapping[str, tuple[int, int]]  # number and dimension, by key


def count_words(words: Words) -> int:
    """Count the words of all passages."""
    packed = np.frombuffer(words.pairs, dtype="<u4")[1::2]
    return int((packed & 0xFFFF).sum())


def write_words(tx: Transaction, scope: ScopeKey, entries: Sequence[tuple[int, Words]]) -> None:
    items, *columns = _make_postings(entries)
    if len(items):
        terms, passages, lengths, counts = map(IntegerArray, columns)
        values = {"terms": terms, "passages": passages, "lengths": lengths, "counts": counts}
        tx.run("add_words", scope=scope, items=BigintArray(items), **values)


def write_vectors(tx: Transaction, scope: ScopeKey, models: Models, entries: Sequence[tuple[int, Vectors]]) -> None:
    by_model: dict[str, list[tuple[int, Vectors]]] = {}
    for n, vectors in entries:
        by_model.setdefault(vectors.model, []).append((n, vectors))
    for key, group in by_model.items():
        model, dimension = models[key]
        matrix = stack_windows([vectors for _, vectors in group], dimension)
        places = [(n, number) for n, vectors in group for number in range(len(vectors.rows))]
        for start in range(0, len(places), _BATCH):
            some, rows = np.array(places[start : start + _BATCH]), matrix[start : start + _BATCH]
            columns = {
                "items": BigintArray(some[:, 0]),
                "numbers": IntegerArray(some[:, 1]),
                "vectors": RealArray(rows),
            }
            tx.run("add_vectors", scope=scope, model=model, dimension=dimension, **columns)
        tx.run("add_vector_count", scope=scope, model=model, count=len(matrix))


def replace_vectors(
    tx: Transaction, scope: ScopeKey, models: Models, vectors: Mapping[tuple[int, str], Vectors]
) -> None:
    """Replace the vectors that an item has of a model."""
    by_model: dict[str, list[int]] = {}
    for n, model in vectors:
        by_model.setdefault(model, []).append(n)
    for model, items in by_model.items():
        tx.run("delete_model_vectors", scope=scope, items=items, model=model)
    write_vectors(tx, scope, models, [(n, each) for (n, _), each in vectors.items() if each.rows])


def _make_postings(entries: Sequence[tuple[int, Words]]) -> tuple[npt.NDArray[np.int64], ...]:
    """A row for each different word of each passage: item, term, passage, length of the passage, count."""
    pairs = [np.frombuffer(words.pairs, dtype="<u4").reshape(-1, 2) for _, words in entries]
    items = np.repeat(np.array([n for n, _ in entries], dtype=np.int64), [len(each) for each in pairs])
    every = np.concatenate(pairs) if pairs else np.empty((0, 2), dtype="<u4")
    passages, counts = (every[:, 1] >> 16).astype(np.int64), (every[:, 1] & 0xFFFF).astype(np.int64)
    # Passages of one item lie together, in order.
    starts = np.flatnonzero(np.append(True, (np.diff(items) != 0) | (np.diff(passages) != 0))) if len(items) else items
    totals = np.add.reduceat(counts, starts) if len(items) else items
    lengths = np.repeat(totals, np.diff(np.append(starts, len(items))))
    return items, every[:, 0].astype(np.uint32).view(np.int32).astype(np.int64), passages, lengths, counts
