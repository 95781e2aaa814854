"""Judge by a small trained model which sentences of a message say something that lasts, and of which kind.

The model is linear: over the pooled states of the local embedder's words, and over hashed words.
`bench/capture/train.py` makes its weights from `bench/capture/training`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from engrain.core.text.passages import Sentence, Span

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

BUCKETS = 8_192  # of hashed words
WORDS_SCALE = 4.0
WEIGHTS = "sentence_model.npz"
KEPT_KINDS = ("fact", "preference", "instruction", "decision", "correction")
_CONTEXT_CHARACTERS = 40
_MIN_WORDS = 3  # a shorter sentence belongs to its neighbour

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[^\w\s]")
_LETTERS = re.compile(r"\w+")
_NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]+")

PoolSpans = Callable[[str, Sequence[Span]], "Matrix"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one sentence: is it worth keeping, how surely (0 to 1), and of which kind would it be."""

    keep: bool
    score: float
    kind: str


def join_fragments(text: str, sentences: Sequence[Sentence]) -> list[Sentence]:
    """Join sentences of one or two words with the one before or behind them on the same line."""
    joined: list[Sentence] = []
    for one in sentences:
        before = joined[-1] if joined else None
        short = min(_count_words(text, one), _count_words(text, before)) < _MIN_WORDS if before else False
        if before and short and "\n" not in text[before.end : one.start]:
            joined[-1] = Sentence(before.start, one.end, one.is_question or before.is_question)
        else:
            joined.append(one)
    return joined


def judge_sentences(text: str, sentences: Sequence[Sentence], pool: PoolSpans) -> list[Verdict]:
    """Judge the sentences of a message."""
    import numpy as np

    if not sentences:
        return []
    weights = _load_weights()
    states = pool(text, [(one.start, one.end) for one in sentences])
    rows = np.hstack([scale_states(states, weights["mean"], weights["spread"]), hash_words(text, sentences)])
    scores = 1 / (1 + np.exp(-(rows @ weights["keep"] + weights["keep_bias"])))
    kinds = np.argmax(rows @ weights["kind"] + weights["kind_bias"], axis=1)
    least = float(weights["threshold"])
    return [
        Verdict(bool(score >= least), float(score), KEPT_KINDS[kind]) for score, kind in zip(scores, kinds, strict=True)
    ]


def scale_states(states: Matrix, mean: Any, spread: Any) -> Matrix:
    import numpy as np

    scaled: Matrix = ((states - mean) / spread * (8 / np.sqrt(states.shape[1]))).astype(np.float32)
    return scaled


def hash_words(text: str, sentences: Sequence[Sentence]) -> Matrix:
    """Return a row of hashed features for each sentence, all of the same length."""
    import numpy as np

    rows = np.zeros((len(sentences), BUCKETS), np.float32)
    for row, sentence in zip(rows, sentences, strict=True):
        features = set(_list_features(text, sentence))
        for one in features:
            row[zlib.crc32(one.encode()) % BUCKETS] += 1.0
        row *= WORDS_SCALE / np.sqrt(max(1.0, float(row @ row)))
    return rows


def _list_features(text: str, sentence: Sentence) -> Iterator[str]:
    part = text[sentence.start : sentence.end]
    words = ["0" if word.isdigit() else word for word in _split_words(part)]
    for place, word in enumerate(words):
        yield f"1 {word}"
        yield f"2 {' '.join(words[place : place + 2])}"
        yield f"3 {' '.join(words[place : place + 3])}"
        if len(word) > 5:
            yield f"stem {word[:5]}"
    for place, word in enumerate(words[:3]):
        yield f"at {place} {word}"
    yield f"last {words[-1] if words else ''}"
    for word in _split_words(text[max(0, sentence.start - _CONTEXT_CHARACTERS) : sentence.start])[-2:]:
        yield f"before {word}"
    for word in _split_words(text[sentence.end : sentence.end + _CONTEXT_CHARACTERS])[:2]:
        yield f"after {word}"
    yield f"length {min(8, len(words) // 2)}"
    yield f"first {sentence.start < 3}"
    yield f"question {sentence.is_question}"
    yield f"quote {any(mark in part for mark in '“”«»')} {part.count(chr(34)) > 1}"
    yield f"digit {any(letter.isdigit() for letter in part)}"
    yield f"name {_NAME.search(part) is not None}"
    yield f"code {'`' in part or '()' in part}"


def _split_words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def _count_words(text: str, sentence: Sentence) -> int:
    return len(_LETTERS.findall(text, sentence.start, sentence.end))


@cache
def _load_weights() -> dict[str, Any]:
    import numpy as np

    with (
        (resources.files("engrain.core") / "data" / WEIGHTS).open("rb") as file,
        np.load(file, allow_pickle=False) as read,
    ):
        return {name: read[name].astype(np.float32) for name in read.files}
