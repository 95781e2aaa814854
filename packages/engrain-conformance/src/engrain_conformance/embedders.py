"""Tests of the Embedder port: unit rows that do not depend on their neighbours, and windows that fit."""

from __future__ import annotations

import numpy as np
import pytest

from engrain.ports.search import Embedder

TEXTS = (
    "Ana lives in Lima.",
    "a",
    "I like tea. " * 12,
    "私は東京に住んでいます。",
    "אני גר בתל אביב",
    "😀 👩‍👩‍👧",
    "line\nbreak\ttab \u202e",
    "x" * 3_000,
    "word " * 5_000,
    "?!",
)


class EmbedderSuite:
    """A backend's test gives `embedder`. `close` is how far a row may differ from the same text's in another batch."""

    close = 1e-5

    @pytest.fixture
    def embedder(self) -> Embedder:
        raise NotImplementedError("give the suite an `embedder` fixture.")

    def test_a_text_is_a_row_of_unit_length(self, embedder: Embedder) -> None:
        for kind in ("query", "document"):
            rows = embedder.embed(TEXTS, kind)
            assert rows.shape == (len(TEXTS), embedder.model.dimension)
            assert rows.dtype == np.float32
            assert np.isfinite(rows).all()
            assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0, abs=1e-4)

    def test_no_text_is_no_row(self, embedder: Embedder) -> None:
        assert embedder.embed([], "document").shape == (0, embedder.model.dimension)

    def test_a_row_does_not_depend_on_its_neighbours(self, embedder: Embedder) -> None:
        together = embedder.embed(TEXTS, "document")
        backwards = embedder.embed(TEXTS[::-1], "document")[::-1]
        alone = np.concatenate([embedder.embed([text], "document") for text in TEXTS])
        assert np.abs(together - alone).max() <= self.close
        assert np.abs(together - backwards).max() <= self.close

    def test_a_long_text_is_cut_and_not_refused(self, embedder: Embedder) -> None:
        long = "Ana lives in Lima and likes tea. " * 30_000
        row = embedder.embed([long], "document")[0]
        head = embedder.embed([embedder.windows(long)[0]], "document")[0]
        assert float(np.dot(row, head)) > 0.9

    def test_windows_are_pieces_of_the_text_in_order(self, embedder: Embedder) -> None:
        for text in (*TEXTS, "Ana lives in Lima and likes tea. " * 300, "東京" * 2_000):
            windows = embedder.windows(text)
            assert windows
            at = 0
            for window in windows:
                assert text.find(window, at) >= 0
                at = text.find(window, at)
            assert windows[0][:1] == text.lstrip()[:1] or windows[0][:1] == text[:1]

    def test_a_short_text_is_one_window(self, embedder: Embedder) -> None:
        assert [piece.strip() for piece in embedder.windows("Ana lives in Lima.")] == ["Ana lives in Lima."]

    def test_a_window_is_within_the_limit(self, embedder: Embedder) -> None:
        for window in embedder.windows("Ana lives in Lima and likes tea. " * 300):
            assert len(embedder.windows(window)) == 1

    def test_windows_leave_nothing_out(self, embedder: Embedder) -> None:
        sentences = [f"Sentence number {n} is about the letter {chr(97 + n % 26)}." for n in range(400)]
        windows = embedder.windows(" ".join(sentences))
        assert len(windows) > 1
        kept = "\n".join(windows)
        assert sum(sentence.split()[2] in kept for sentence in sentences) == len(sentences)

    def test_like_texts_are_nearer_than_others(self, embedder: Embedder) -> None:
        query = embedder.embed(["Where does Ana live?"], "query")[0]
        near, far = embedder.embed(["Ana lives in Lima.", "The parser reads 64 bit integers."], "document")
        assert float(np.dot(query, near)) > float(np.dot(query, far))

    def test_the_model_names_its_vectors(self, embedder: Embedder) -> None:
        model = embedder.model
        assert model.name
        assert str(model.dimension) in model.key
        assert model.hash[:12] in model.key
        assert -1 < model.floor < 1
