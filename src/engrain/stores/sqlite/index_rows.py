"""Write the rows that search reads: the words of an item, and its vectors as codes and as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Vectors, Words

MODEL_SHIFT = 40
LEVELS = 127
_LONGEST = 1.001**2


class Db(Protocol):
    """What is asked of a connection; the caller holds the transaction."""

    def run(self, sql: str, args: Any = ()) -> Any: ...

    def rows(self, sql: str, args: Any = ()) -> Any: ...


def code_type(dimension: int) -> np.dtype[np.void]:
    """One window as table `code` keeps it."""
    return np.dtype([("scale", "<f4"), ("error", "<f4"), ("codes", "i1", (dimension,))])


def key_of(model: int, n: int) -> int:
    return model << MODEL_SHIFT | n


def write_index(db: Db, n: int, words: Words, vectors: Vectors | None) -> None:
    """Put the index rows of item n in place of what was there; other models' vectors stay."""
    write_index_many(db, [(n, words, vectors)])


def write_index_many(db: Db, entries: Iterable[tuple[int, Words, Vectors | None]]) -> None:
    """write_index for many items: one pass of arithmetic per model instead of one per item."""
    by_model: dict[str, list[tuple[int, Vectors]]] = {}
    for n, words, vectors in entries:
        db.run("insert or replace into words (item, pairs) values (?, ?)", (n, words.pairs))
        if vectors is not None and vectors.rows:
            by_model.setdefault(vectors.model, []).append((n, vectors))
    for key, given in by_model.items():
        model = _model(db, key, len(given[0][1].rows[0]) // 4)
        _write_vectors(db, model, given)


def write_vectors(db: Db, n: int, vectors: Vectors) -> None:
    """Put these vectors in place of the item's vectors of the same model."""
    if vectors.rows:
        write = [(n, vectors)]
        _write_vectors(db, _model(db, vectors.model, len(vectors.rows[0]) // 4), write)
    else:
        drop_vectors(db, n, vectors.model)


def drop_index(db: Db, n: int) -> None:
    """Remove words and vectors of item n."""
    db.run("delete from words where item = ?", (n,))
    drop_vectors(db, n)


def drop_vectors(db: Db, n: int, model: str | None = None) -> None:
    """Remove the item's vectors of one model, or of all."""
    where = "" if model is None else "where key = ?"
    for (number,) in list(db.rows(f"select n from model {where}", () if model is None else (model,))):
        key = (key_of(number, n),)
        db.run("delete from code where key = ?", key)
        db.run("delete from vector where key = ?", key)


def recode(db: Db, items: Sequence[int]) -> None:
    """Codes of these items anew, from the vectors that they stand for. A vector of a wrong size is left alone."""
    for model, dimension in list(db.rows("select n, dimension from model")):
        for key in (key_of(model, n) for n in items):
            for (windows,) in list(db.rows("select windows from vector where key = ?", (key,))):
                if windows and len(windows) % (4 * dimension) == 0:
                    coded = quantise(np.frombuffer(windows, dtype="<f4").reshape(-1, dimension))
                    db.run("insert or replace into code (key, windows) values (?, ?)", (key, coded.tobytes()))


def quantise(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.void]:
    """int8 codes, a scale per row, and the length of the difference, never less than it is."""
    coded = np.empty(len(rows), dtype=code_type(rows.shape[1]))
    top = np.abs(rows).max(axis=1)
    scale = np.where(top > 0, top / np.float32(LEVELS), np.float32(1))
    codes = np.rint(rows / scale[:, None]).clip(-LEVELS, LEVELS)
    rest = rows.astype(np.float64) - codes * scale[:, None].astype(np.float64)
    length = np.sqrt(np.square(rest).sum(axis=1))
    coded["scale"] = scale
    coded["codes"] = codes
    # One step up: rounding to float32 must not make the bound too small.
    coded["error"] = np.nextafter(length.astype(np.float32), np.float32(np.inf))
    return coded


def _model(db: Db, key: str, dimension: int) -> int:
    found = list(db.rows("select n, dimension from model where key = ?", (key,)))
    if not found:
        db.run("insert into model (key, dimension) values (?, ?)", (key, dimension))
        found = list(db.rows("select n, dimension from model where key = ?", (key,)))
    number, known = found[0]
    if known != dimension:
        raise InvalidInput(f"vectors of {key} have {known} dimensions here, not {dimension}.")
    return int(number)


def _write_vectors(db: Db, model: int, given: Sequence[tuple[int, Vectors]]) -> None:
    width = len(given[0][1].rows[0])
    windows = [row for _, vectors in given for row in vectors.rows]
    if width == 0 or width % 4 or any(len(row) != width for row in windows):
        raise InvalidInput(f"vectors of {given[0][1].model} must all be float32 of {width // 4} dimensions.")
    matrix = np.frombuffer(b"".join(windows), dtype="<f4").reshape(len(windows), -1)
    if not np.isfinite(matrix).all():
        raise InvalidInput("a vector holds a value that is not a finite number.")
    # The bound on the error of a code rests on it. A shorter one does no harm.
    if np.einsum("ij,ij->i", matrix, matrix).max() > _LONGEST:
        raise InvalidInput("a vector is longer than 1: vectors must have unit length.")
    coded = quantise(matrix)
    first = 0
    for n, vectors in given:
        last = first + len(vectors.rows)
        key = key_of(model, n)
        db.run("insert or replace into code (key, windows) values (?, ?)", (key, coded[first:last].tobytes()))
        db.run("insert or replace into vector (key, windows) values (?, ?)", (key, b"".join(vectors.rows)))
        first = last
