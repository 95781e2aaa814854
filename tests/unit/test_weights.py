"""The shipped weights were made from the training data in the repository."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from engrain.core.model_weights import find_weights, load_weights, multiply, pack_table
from engrain.ingest import changes
from engrain.ingest.changes import judge_aspects, list_aspects
from engrain.ingest.whose_words import WEIGHTS

BENCH = Path(__file__).parents[2] / "bench" / "capture"
HOSTILE = BENCH.parent / "hostile"


@pytest.mark.parametrize("name", ["sentence_model.npz", "changes.npz", "forget.npz"])
def test_weights_name_the_data_they_were_made_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delitem(sys.modules, "measure", raising=False)
    from measure import CHANGES, hash_files, hash_forget_files  # type: ignore[import-not-found]

    more = CHANGES.values() if name == "changes.npz" else ()
    expected = hash_forget_files() if name == "forget.npz" else hash_files(*more)
    file = resources.files("engrain.core") / "data" / name
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as read:
        assert str(read["data"]) == expected, f"run the script that makes {name}"


def test_weights_of_whose_words_name_the_texts_they_were_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOSTILE))
    from whose_texts import hash_texts  # type: ignore[import-not-found]

    with np.load(find_weights(WEIGHTS), allow_pickle=False) as read:
        assert str(read["data"]) == hash_texts(), "run bench/hostile/train_whose_words.py"


def test_a_packed_table_is_read_back_within_half_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    np.savez_compressed(tmp_path / "packed.npz", **pack_table("words", table), bias=np.ones(3, np.float16))
    monkeypatch.setattr("engrain.core.model_weights.find_weights", lambda file, _: tmp_path / file)
    read = load_weights("packed.npz")
    assert set(read) == {"words", "bias"}
    assert read["words"].dtype == read["bias"].dtype == np.float32
    assert np.abs(read["words"] - table).max() <= np.abs(table).max() / 127 / 2 + 1e-6


def test_rows_are_multiplied_as_a_matrix_is() -> None:
    rows, table = np.random.default_rng(2).normal(size=(2, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(multiply(rows, table), rows @ table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "aspect"),
    [("ich wohne in Leipzig", "city"), ("je travaille comme infirmière", "job"), ("soy vegetariana", "diet")],
)
def test_words_alone_tell_the_aspect_where_the_vector_does_not(text: str, aspect: str) -> None:
    chances = judge_aspects(text, np.zeros(384, np.float32), load_weights(changes.WEIGHTS))
    assert aspect in [list_aspects()[place] for place in np.argsort(chances)[::-1][:2]]
