"""Write the rows that search reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engrain.core.errors import InvalidInput
from engrain.core.model.items import Vectors, Words
from engrain.stores.sqlite.checksums import insert_row
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.syntax import load_sql

MODEL_SHIFT = 40


class IndexRows:
    """The rows that search reads: the words of an item, and its vectors both rounded and in full.

    The caller holds the transaction."""

    def __init__(self, db: Connection, codes: Mapping[int, bytes] | None = None) -> None:
        self._db = db
        self._codes = codes or {}  # as SqliteDialect has them

    def add(self, entries: Iterable[tuple[int, Words, Vectors | None]]) -> None:
        """Add rows of items that have none, with the vectors of one model or of several."""
        by_model: dict[str, list[tuple[int, Vectors]]] = {}
        words_by_item: dict[int, Words] = {}
        for n, words, vectors in entries:
            words_by_item[n] = words
            if vectors is not None and vectors.rows:
                by_model.setdefault(vectors.model, []).append((n, vectors))
        for n, words in words_by_item.items():
            insert_row(self._db, load_sql()["add_index_words"], {"item": n, "pairs": words.pairs})
        for items in by_model.values():
            self._add_vectors(items)

    def replace_words(self, n: int, words: Words) -> None:
        self._db.run(load_sql()["delete_index_words"], {"item": n})
        insert_row(self._db, load_sql()["add_index_words"], {"item": n, "pairs": words.pairs})

    def replace_vectors(self, n: int, vectors: Vectors) -> None:
        """Replace the item's vectors of the same model."""
        self.delete_vectors(n, vectors.model)
        if vectors.rows:
            self._add_vectors([(n, vectors)])

    def delete(self, n: int) -> None:
        self._db.run(load_sql()["delete_index_words"], {"item": n})
        self.delete_vectors(n)

    def delete_vectors(self, n: int, model: str | None = None) -> None:
        """Delete the item's vectors of one model, or of all."""
        find = "list_vector_models" if model is None else "find_vector_model"
        for number, _ in self._db.rows(load_sql()[find], {} if model is None else {"model": model}):
            for delete in ("delete_code", "delete_index_vector"):
                self._db.run(load_sql()[delete], {"key": vector_key(number, n)})

    def rewrite_codes(self, items: Sequence[int]) -> None:
        """Make the codes of these items from their vectors. A vector of a wrong size is left alone."""
        from engrain.stores.sqlite.index.vectors import encode_stored

        for model, dimension in self._db.rows(load_sql()["list_vector_models"]):
            for key in (vector_key(model, n) for n in items):
                for (windows,) in self._db.rows(load_sql()["load_index_vector"], {"key": key}):
                    if coded := encode_stored(windows, dimension):
                        self._db.run(load_sql()["delete_code"], {"key": key})
                        insert_row(self._db, load_sql()["add_code"], {"key": key, "windows": coded})

    def _add_vectors(self, items: Sequence[tuple[int, Vectors]]) -> None:
        """Vectors of one model, coded in one pass of arithmetic."""
        from engrain.stores.sqlite.index.vectors import encode_items

        first = items[0][1]
        model = self._find_or_add_model(first.model, len(first.rows[0]) // 4)
        coded = [self._codes[id(vectors)] for _, vectors in items if id(vectors) in self._codes]
        if len(coded) < len(items):
            coded = encode_items([vectors for _, vectors in items])
        for (n, vectors), codes in zip(items, coded, strict=True):
            key = vector_key(model, n)
            insert_row(self._db, load_sql()["add_code"], {"key": key, "windows": codes})
            insert_row(self._db, load_sql()["add_index_vector"], {"key": key, "windows": b"".join(vectors.rows)})

    def _find_or_add_model(self, model: str, dimension: int) -> int:
        found = self._db.models.get(model)
        if found is None:
            rows = self._db.rows(load_sql()["find_vector_model"], {"model": model})
            values = {"model": model, "dimension": dimension}
            found = (rows or self._db.rows(load_sql()["add_vector_model"], values))[0]
            self._db.models[model] = found
        number, known = found
        if known != dimension:
            raise InvalidInput(f"vectors of {model} have {known} dimensions here, not {dimension}.")
        return int(number)


def vector_key(model: int, n: int) -> int:
    """The key of an item's vectors by one model."""
    return model << MODEL_SHIFT | n
