"""Share between training scripts: the passes of the local embedder, kept in a file, and the steps of a fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from engrain.providers.local import LocalEmbedder, WordStates

RATE, DECAY = 4e-3, 0.05  # of Adam

Value = TypeVar("Value")
Result = TypeVar("Result")
_forked: list[Callable[[Any], Any]] = []


def fit_in_processes(fit: Callable[[Value], Result], values: Sequence[Value]) -> list[Result]:
    """Call `fit` for each value in a process of its own, which inherits what was read so far."""
    _forked.append(fit)
    try:
        with get_context("fork").Pool(len(values)) as pool:
            return pool.map(_fit_forked, values, chunksize=1)
    finally:
        _forked.pop()


def _fit_forked(value: Any) -> Any:
    return _forked[-1](value)


class KeptStates:
    """The local embedder, with the states of the texts in a file: its own, to the last bit."""

    def __init__(self, path: Path | None = None) -> None:
        self._embedder, self._path = LocalEmbedder(), path
        self._known: dict[str, WordStates] = {}
        self._added = False
        if path and path.exists():
            self._load(path)

    def windows(self, text: str) -> Any:
        return self._embedder.windows(text)

    def read_text(self, text: str) -> WordStates:
        found = self._known.get(text)
        if found is None:
            found = self._embedder.read_text(text)
            if self._path:
                self._known[text], self._added = found, True
        return found

    def save(self) -> None:
        """Write the file, if there is one and something was added."""
        if not self._path or not self._added:
            return
        some = list(self._known.values())
        np.savez(
            self._path,
            texts=np.frombuffer(json.dumps(list(self._known)).encode(), np.uint8),
            sizes=np.array([len(one.layers[0]) for one in some]),
            vectors=np.stack([one.vector for one in some]),
            starts=np.concatenate([one.starts for one in some]),
            counts=np.array([len(one.starts) for one in some]),
            layers=np.concatenate([np.stack(one.layers, 1) for one in some]),
        )
        self._added = False

    def _load(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as file:
            read = {name: file[name] for name in file.files}
        places, starts = (pairwise([0, *np.cumsum(read[name])]) for name in ("sizes", "counts"))
        texts = json.loads(read["texts"].tobytes())
        for text, vector, of_layers, of_starts in zip(texts, read["vectors"], places, starts, strict=True):
            states = read["layers"][slice(*of_layers)]
            layers = [np.ascontiguousarray(states[:, place]) for place in range(states.shape[1])]
            self._known[text] = WordStates(text, vector, read["starts"][slice(*of_starts)], layers)


class Adam:
    """Changes weights along their slopes, with a rate that falls to zero, and lets them decay."""

    def __init__(self, weights: dict[str, Any], steps: int) -> None:
        self._weights, self._steps, self._step = weights, steps, 0
        self._first = {name: np.zeros_like(value) for name, value in weights.items()}
        self._second = {name: np.zeros_like(value) for name, value in weights.items()}

    def step(self, slopes: dict[str, Any]) -> None:
        self._step += 1
        rate = RATE * (1 - (self._step - 1) / self._steps)
        for name, slope in slopes.items():
            first, second, weights = self._first[name], self._second[name], self._weights[name]
            first += 0.1 * (slope - first)
            second += 0.01 * (slope * slope - second)
            scaled = np.sqrt(second / (1 - 0.99**self._step)) + 1e-8
            weights -= rate * (first / (1 - 0.9**self._step) / scaled + DECAY * weights * (weights.ndim > 1))


def draw_mask(random: np.random.Generator, shape: tuple[int, ...], dropped: float) -> Any:
    return (random.random(shape, np.float32) >= dropped).astype(np.float32) / (1 - dropped)
