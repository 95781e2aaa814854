"""Judge by a small trained model what a sentence of a coding session leaves behind.

The model is linear in the states of the local embedder's words, in hashed words, and in the verdict of the model that
judges every message. `bench/capture/train_events.py` makes its weights.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from engrain.core.errors import EngrainError
from engrain.core.model_weights import Weights, load_weights, multiply
from engrain.core.text.passages import Sentence
from engrain.ingest import sentence_model

if TYPE_CHECKING:
    from engrain.ports.search import Matrix, TextStates

    ReadText = Callable[[str], TextStates]

NoteKind = Literal["rule", "wish", "decision", "correction", "cause", "fix"]
KINDS: tuple[NoteKind, ...] = get_args(NoteKind)
WEIGHTS = "sentence_kinds.npz"
BUCKETS = 4_096  # of hashed words
VERDICT_INPUTS = 2 + len(sentence_model.KEPT_KINDS)
WORDS_SCALE, VERDICT_SCALE = 3.0, 1.0
MAX_PASS_CHARACTERS = 700  # what the embedder reads whole in one pass
_CONTEXT_CHARACTERS = 40
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[^\w\s]")
_PATH = re.compile(r"[a-z]/[a-z]|[a-z]\.[a-z]{2,4}\b")


@dataclass(frozen=True, slots=True)
class Judged:
    """The kind that fits a sentence best. `keep`: it is worth keeping; `drop`: a rule that keeps it must be wrong."""

    kind: NoteKind
    keep: bool = False
    drop: bool = False


UNJUDGED = Judged("rule")


@dataclass(frozen=True, slots=True)
class SentenceJudge:
    """Judges the sentences of prompts, or of the agent's answers, on the states of one embedder."""

    read: ReadText
    weights: Weights | None = None

    def judge(self, text: str, sentences: Sequence[Sentence], of_agent: bool) -> list[Judged]:
        import numpy as np

        if not sentences:
            return []
        weights = self.weights or load_weights(WEIGHTS, "engrain.connect")
        try:
            scores = score_inputs(list_inputs(text, sentences, of_agent, self.read), weights)
        except EngrainError:  # the embedder failed: the rules alone decide
            return [UNJUDGED] * len(sentences)
        sure = 1 - scores[:, -1]
        kinds = np.argmax(scores[:, :-1], axis=1)
        threshold, least = float(weights["threshold"]), float(weights["least"])
        judged = zip(sure, kinds, strict=True)
        return [Judged(KINDS[kind], bool(one >= threshold), bool(one < least)) for one, kind in judged]


def list_inputs(text: str, sentences: Sequence[Sentence], of_agent: bool, read: ReadText) -> Matrix:
    """Return a row of inputs for each sentence: states, verdict, words."""
    import numpy as np

    parts = [
        np.hstack(
            [
                states.pool_spans([(sentence.start, sentence.end) for sentence in inside]),
                _list_verdicts(states, inside, of_agent),
                _hash_words(passed, inside, of_agent),
            ]
        )
        for passed, inside in _split_passes(text, sentences)
        for states in [read(passed)]
    ]
    rows: Matrix = np.vstack(parts)
    return rows


def score_inputs(rows: Matrix, weights: Weights) -> Matrix:
    """Return how likely each kind is for each row, and in the last column how likely nothing is left behind."""
    import numpy as np

    size = len(weights["mean"])
    scaled = np.hstack([(rows[:, :size] - weights["mean"]) / weights["spread"], rows[:, size:]])
    values = multiply(scaled, weights["linear"]) + weights["bias"]
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    scores: Matrix = powers / powers.sum(axis=1, keepdims=True)
    return scores


def _split_passes(text: str, sentences: Sequence[Sentence]) -> Iterator[tuple[str, list[Sentence]]]:
    """Yield parts of a long text with their sentences. A short text is one part, whose vector comes from this pass."""
    if len(text) <= MAX_PASS_CHARACTERS:
        yield text, list(sentences)
        return
    inside: list[Sentence] = []
    for sentence in sentences:
        if inside and sentence.end - inside[0].start > MAX_PASS_CHARACTERS:
            yield _cut(text, inside)
            inside = []
        inside.append(sentence)
    yield _cut(text, inside)


def _cut(text: str, inside: list[Sentence]) -> tuple[str, list[Sentence]]:
    start, end = inside[0].start, min(inside[-1].end, inside[0].start + MAX_PASS_CHARACTERS)
    return text[start:end], [
        Sentence(sentence.start - start, sentence.end - start, sentence.is_question) for sentence in inside
    ]


def _list_verdicts(states: TextStates, sentences: Sequence[Sentence], of_agent: bool) -> Matrix:
    """Return what the model for all messages says of each sentence, from the same states; nothing of an agent's."""
    import numpy as np

    rows = np.zeros((len(sentences), VERDICT_INPUTS), np.float32)
    if of_agent:
        return rows
    verdicts = sentence_model.judge_sentences(states, sentences)
    for row, verdict in zip(rows, verdicts, strict=True):
        row[:2] = verdict.keep, verdict.drop
        row[2 + sentence_model.KEPT_KINDS.index(verdict.kind)] = 1
    return rows * VERDICT_SCALE


def _hash_words(text: str, sentences: Sequence[Sentence], of_agent: bool) -> Matrix:
    import numpy as np

    rows = np.zeros((len(sentences), BUCKETS), np.float32)
    for row, sentence in zip(rows, sentences, strict=True):
        for one in set(_list_features(text, sentence, of_agent)):
            row[zlib.crc32(one.encode()) % BUCKETS] += 1.0
        row *= WORDS_SCALE / np.sqrt(max(1.0, float(row @ row)))
    return rows


def _list_features(text: str, sentence: Sentence, of_agent: bool) -> Iterator[str]:
    part = text[sentence.start : sentence.end]
    words = ["0" if word.isdigit() else word for word in _split_words(part)]
    for place, word in enumerate(words):
        yield f"1 {word}"
        yield f"2 {' '.join(words[place : place + 2])}"
        if len(word) > 5:
            yield f"stem {word[:5]}"
    for place, word in enumerate(words[:3]):
        yield f"at {place} {word}"
    yield f"begin {' '.join(words[:2])}"
    yield f"last {words[-1] if words else ''}"
    for word in _split_words(text[max(0, sentence.start - _CONTEXT_CHARACTERS) : sentence.start])[-2:]:
        yield f"before {word}"
    for word in _split_words(text[sentence.end : sentence.end + _CONTEXT_CHARACTERS])[:2]:
        yield f"after {word}"
    yield f"length {min(8, len(words) // 3)}"
    yield f"question {sentence.is_question}"
    yield f"agent {of_agent}"
    yield f"first {sentence.start < 3} {of_agent}"
    yield f"code {'`' in part} path {_PATH.search(part) is not None}"


def _split_words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]
