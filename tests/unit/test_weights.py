"""The shipped weights were made from the training data in the repository."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from engrain.ingest.whose_words import find_weights

BENCH = Path(__file__).parents[2] / "bench" / "capture"
HOSTILE = BENCH.parent / "hostile"


@pytest.mark.parametrize("name", ["sentence_model.npz", "changes.npz", "forget.npz"])
def test_weights_name_the_data_they_were_made_from(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.delitem(sys.modules, "measure", raising=False)
    from measure import BLIND_2_FILES, CHANGES, hash_files, hash_forget_files  # type: ignore[import-not-found]

    more = CHANGES.values() if name == "changes.npz" else (BLIND_2_FILES,)
    expected = hash_forget_files() if name == "forget.npz" else hash_files(*more)
    file = resources.files("engrain.core") / "data" / name
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as read:
        assert str(read["data"]) == expected, f"run the script that makes {name}"


def test_weights_of_whose_words_name_the_pastes_they_were_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HOSTILE))
    from whose_texts import hash_pastes  # type: ignore[import-not-found]

    with np.load(find_weights(), allow_pickle=False) as read:
        assert str(read["data"]) == hash_pastes(), "run bench/hostile/train_whose_words.py"
