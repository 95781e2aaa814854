"""Write the rows that search reads: the words of an item, and its vectors both rounded and in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import Vectors, Words
from engrain.stores.relational.vectors import stack_windows
from engrain.stores.sqlite.dialect import load_sql

SQL = load_sql()
MODEL_SHIFT = 40
_LEVELS = 127


class Writer(Protocol):
    """A connection; the caller holds the transaction."""

    def run(self, sql: str, args: Any = ()) -> Any: ...

    def rows(self, sql: str, args: Any = ()) -> Any: ...


def write_index(db: Writer, n: int, words: Words, vectors: Vectors | None) -> None:
    """Replace the index rows of item n; vectors of other models stay."""
    write_index_many(db, [(n, words, vectors)])


def write_index_many(db: Writer, entries: Iterable[tuple[int, Words, Vectors | None]]) -> None:
    """write_index for many items: one pass of arithmetic per model instead of one per item."""
    by_model: dict[str, list[tuple[int, Vectors]]] = {}
    for n, words, vectors in entries:
        db.run(SQL["write_index_words"], {"item": n, "pairs": words.pairs})
        if vectors is not None and vectors.rows:
            by_model.setdefault(vectors.model, []).append((n, vectors))
    for given in by_model.values():
        _write_vectors(db, given)


def write_vectors(db: Writer, n: int, vectors: Vectors) -> None:
    """Replace the item's vectors of the same model."""
    if vectors.rows:
        _write_vectors(db, [(n, vectors)])
    else:
        drop_vectors(db, n, vectors.model)


def drop_vectors(db: Writer, n: int, model: str | None = None) -> None:
    """Delete the item's vectors of one model, or of all."""
    found = db.rows(SQL["list_vector_models"]) if model is None else db.rows(SQL["find_vector_model"], {"model": model})
    for number, _ in list(found):
        key = {"key": vector_key(number, n)}
        db.run(SQL["delete_code"], key)
        db.run(SQL["delete_index_vector"], key)


def rewrite_codes(db: Writer, items: Sequence[int]) -> None:
    """Make the codes of these items from their vectors. A vector of a wrong size is left alone."""
    for model, dimension in list(db.rows(SQL["list_vector_models"])):
        for key in (vector_key(model, n) for n in items):
            for (windows,) in list(db.rows(SQL["load_index_vector"], {"key": key})):
                if windows and len(windows) % (4 * dimension) == 0:
                    coded = quantise(np.frombuffer(windows, dtype="<f4").reshape(-1, dimension))
                    db.run(SQL["write_code"], {"key": key, "windows": coded.tobytes()})


def vector_key(model: int, n: int) -> int:
    """The key of an item's vectors by one model."""
    return model << MODEL_SHIFT | n


def code_type(dimension: int) -> np.dtype[np.void]:
    """One window as table `code` stores it."""
    return np.dtype([("scale", "<f4"), ("error", "<f4"), ("codes", "i1", (dimension,))])


def quantise(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.void]:
    """int8 codes, a scale per row, and an upper bound on the length of the difference."""
    coded = np.empty(len(rows), dtype=code_type(rows.shape[1]))
    top = np.abs(rows).max(axis=1)
    scale = np.where(top > 0, top / np.float32(_LEVELS), np.float32(1))
    codes = np.rint(rows / scale[:, None]).clip(-_LEVELS, _LEVELS)
    rest = rows.astype(np.float64) - codes * scale[:, None].astype(np.float64)
    length = np.sqrt(np.square(rest).sum(axis=1))
    coded["scale"] = scale
    coded["codes"] = codes
    # One step up: rounding to float32 must not make the bound too small.
    coded["error"] = np.nextafter(length.astype(np.float32), np.float32(np.inf))
    return coded


def _write_vectors(db: Writer, given: Sequence[tuple[int, Vectors]]) -> None:
    """Write vectors of one model."""
    name, width = given[0][1].model, len(given[0][1].rows[0])
    model, dimension = _find_or_add_model(db, name, width // 4)
    matrix = stack_windows([vectors for _, vectors in given], dimension)
    coded = quantise(matrix)
    first = 0
    for n, vectors in given:
        last = first + len(vectors.rows)
        key = vector_key(model, n)
        db.run(SQL["write_code"], {"key": key, "windows": coded[first:last].tobytes()})
        db.run(SQL["write_index_vector"], {"key": key, "windows": b"".join(vectors.rows)})
        first = last


def _find_or_add_model(db: Writer, model: str, dimension: int) -> tuple[int, int]:
    """The number of a model, and the dimension of its vectors."""
    found = list(db.rows(SQL["find_vector_model"], {"model": model}))
    if not found:
        found = list(db.rows(SQL["add_vector_model"], {"model": model, "dimension": dimension}))
    number, known = found[0]
    return int(number), int(known)
