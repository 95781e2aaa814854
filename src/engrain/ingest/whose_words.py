"""Judge by a small trained model which parts of a message its speaker says in earnest, and which are of others.

The model has one hidden layer over the pooled states of a part, of its neighbours and of both ends of the message, and
over the shape of the message; it is linear in hashed words. `bench/hostile/train_whose_words.py` makes its weights.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engrain.core.model_weights import Weights, load_weights, multiply
from engrain.core.rules.own_words import find_announced, find_hidden, find_lead_end
from engrain.core.rules.quotation_frames import HIDDEN_LETTER, cue
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import Sentence, Span, merge_spans, split_sentences, trim_span
from engrain.core.text.tokenizer import tokenize

if TYPE_CHECKING:
    from engrain.ports.search import Matrix, TextStates

BUCKETS = 16_384  # of hashed words
WEIGHTS = "whose_words.npz"
MAX_PARTS = 60
# A statement is kept from the first chance in a message without a sign of the words of others, and from the second in
# one with such a sign. A message sets slots only if it has no sign and its one part reaches the third, or each of its
# several parts the fourth: where several parts speak, one may be the frame of the others.
MIN_PLAIN, MIN_OWN, MIN_SURE, MIN_ALL_SURE = 0.2, 0.5, 0.9, 0.95
_WORDS_SCALE, _VECTOR_SCALE, _SHAPE_SCALE = 3.0, 6.0, 1.0
_CONTEXT_CHARACTERS = 160
# Within a sentence: a colon, an arrow, or the end of a quotation.
_BREAK = re.compile(rf":(?=\s)|\s(?:[-=]+>|→|—|–|- )(?=\s)|(?<={HIDDEN_LETTER})[\"”“»’'][.,]?(?=\s)")
_OWN_LETTER = re.compile(rf"[^\W\d_{HIDDEN_LETTER}]")
_COLON = re.compile(r":(?=\s|$)")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[^\w\s]")


def split_parts(shown: str) -> list[Sentence]:
    """Return the sentences of a message, cut at colons, arrows and behind quotations, without hidden words."""
    parts: list[Sentence] = []
    for sentence in split_sentences(shown):
        edges = [sentence.start, *(match.end() for match in _BREAK.finditer(shown, sentence.start, sentence.end))]
        for start, end in zip(edges, [*edges[1:], sentence.end], strict=True):
            start, end = trim_span(shown, start, end)
            if _OWN_LETTER.search(shown, start, end):
                parts.append(Sentence(start, end, sentence.is_question and end == sentence.end))
    return parts


@dataclass(frozen=True, slots=True)
class OwnChances:
    """The parts of a message, each with the chance that it is its speaker's own."""

    parts: Sequence[Sentence]
    chances: Sequence[float]
    end: int  # of the text that was read

    @property
    def mixed(self) -> bool:
        """Tell if some part is probably not the speaker's."""
        return min(self.chances, default=1.0) < MIN_PLAIN

    def list_others(self, length: int, *, mixed: bool) -> list[Span]:
        """Return the parts of others in a text of that length, each with the marks and quotations behind it.

        `mixed`: the message has a sign of the words of others. Then what was not read is of others as well.
        """
        least = MIN_OWN if mixed else MIN_PLAIN
        # Marks that stayed would join the sentences around them: "I live in Ghent. … : …".
        ends = [*(one.start for one in self.parts[1:]), self.end]
        judged = zip(self.parts, ends, self.chances, strict=False)
        others = [(part.start, end) for part, end, own in judged if own < least]
        return [*others, (self.end, length)] if mixed else others

    def is_sure(self, length: int) -> bool:
        """Tell if a text of that length was read to its end, and all of it is surely the speaker's."""
        least = MIN_SURE if len(self.parts) == 1 else MIN_ALL_SURE
        return self.end >= length and min(self.chances, default=1.0) >= least

    def weigh(self, start: int, end: int) -> int:
        """Return the doubt about a span: 1 if a part of it is less probably the speaker's than not."""
        inside = (one.start < end and start < one.end for one in self.parts)
        return int(any(chance < MIN_OWN for chance, found in zip(self.chances, inside, strict=True) if found))


def judge_speakers(read: TextStates, shown: str, weights: Weights | None = None) -> OwnChances:
    """Judge the parts of a text that the states cover. `shown` is the text without pasted words."""
    import numpy as np

    weights, text = weights or load_weights(WEIGHTS), read.text
    shown = shown[: len(text)]
    parts = split_parts(shown)[:MAX_PARTS]
    if not parts:
        return OwnChances((), (), len(text))
    pooled = read.pool_spans([(one.start, one.end) for one in parts])
    states = multiply(pooled - weights["mean"], weights["axes"])
    inputs = join_inputs(states, read.vector, describe_parts(text, shown, parts))
    scores = score_parts(inputs, hash_parts(shown, parts), weights)
    return OwnChances(parts, (1 / (1 + np.exp(-scores))).tolist(), len(text))


def score_parts(inputs: Matrix, words: Sequence[Sequence[int]], weights: Weights) -> Matrix:
    import numpy as np

    hidden = np.maximum(multiply(inputs, weights["hidden"]) + weights["hidden_bias"], 0)
    known = np.stack([weights["words"][places].sum(0) * scale_words(len(places)) for places in words])
    scores: Matrix = multiply(hidden, weights["out"]) + multiply(inputs, weights["straight"]) + known + weights["bias"]
    return scores[:, 0]


def scale_words(count: int) -> float:
    return float(_WORDS_SCALE / max(1, count) ** 0.5)


def join_inputs(states: Matrix, vector: Matrix, shape: Matrix) -> Matrix:
    """Return for each part its states, those of its neighbours and of the ends of the message, and its shape."""
    import numpy as np

    none = np.zeros_like(states[:1])
    before, after = np.vstack([none, states[:-1]]), np.vstack([states[1:], none])
    first, last = np.tile(states[:1], (len(states), 1)), np.tile(states[-1:], (len(states), 1))
    whole = np.tile(vector * _VECTOR_SCALE, (len(states), 1))
    return np.hstack([states, before, after, first, last, whole, shape * _SHAPE_SCALE]).astype(np.float32)


def describe_parts(text: str, shown: str, parts: Sequence[Sentence]) -> Matrix:
    """Return the shape of the message around each part."""
    import numpy as np

    said = [shown[one.start : one.end] for one in parts]
    speaks = [any(cue(name).search(one) for name in ("speaker", "first_person")) for one in said]
    asks = [one.is_question for one in parts]
    columns = [
        [_describe_place(shown, parts, k) for k in range(len(parts))],
        [[*_describe_neighbours(asks, k), asks[-1]] for k in range(len(parts))],
        [[*_describe_neighbours(speaks, k), sum(speaks) / len(parts)] for k in range(len(parts))],
        _describe_marks(text, shown, parts),
        _describe_writing(shown, parts, said),
        _describe_rules(text, shown, parts),
    ]
    return np.hstack([np.array(some, np.float32) for some in columns])


def _describe_place(shown: str, parts: Sequence[Sentence], k: int) -> list[float]:
    part, last = parts[k], len(parts) - 1 - k
    gap = shown[parts[k - 1].end : part.start] if k else ""
    line = shown[shown.rfind("\n", 0, part.start) + 1 : part.start]
    earlier, rest = shown[: part.start], shown[part.end :].rstrip()
    return [
        *(k == 0, last == 0, min(k, 6) / 3, min(last, 6) / 3, min(len(parts), 12) / 6),
        *(min(len(shown), 1_200) / 600, min(part.end - part.start, 240) / 120),
        *("\n" in gap, _BLANK_LINE.search(gap) is not None, ":" in gap),
        *(_COLON.search(where) is not None for where in (line, earlier, rest)),
        *(_BLANK_LINE.search(where) is not None for where in (earlier, rest)),
        *("\n" in where for where in (earlier, rest)),
    ]


def _describe_neighbours(found: Sequence[bool], k: int) -> list[float]:
    """Tell if something is found in a part, in its two neighbours, before it and behind it."""
    return [found[k], any(found[max(0, k - 1) : k]), any(found[k + 1 : k + 2]), any(found[:k]), any(found[k + 1 :])]


def _describe_marks(text: str, shown: str, parts: Sequence[Sentence]) -> list[list[bool]]:
    """Tell if words are hidden in the message, before a part, behind it and in it."""
    hidden = [
        place for place, (one, other) in enumerate(zip(text, shown, strict=False)) if one != other and one not in "’\n"
    ]
    first, last = (hidden[0], hidden[-1]) if hidden else (len(text), -1)
    return [
        [bool(hidden), first < one.start, last >= one.end, HIDDEN_LETTER in shown[one.start : one.end]] for one in parts
    ]


def _describe_writing(shown: str, parts: Sequence[Sentence], said: Sequence[str]) -> list[list[bool]]:
    """Compare the language and the first letter of each part with those of both ends of the message."""
    languages = [_detect_language(one) for one in said]
    small = [one[:1].islower() for one in said]
    rows = []
    for k, part in enumerate(parts):
        end = shown[part.end : part.end + 1]
        differs = [
            None not in (languages[k], other) and languages[k] != other for other in languages[:: len(parts) - 1 or 1]
        ]
        letters = [small[k], small[0] and not small[k], small[-1] and not small[k], small[k] and not small[0]]
        rows.append(
            [differs[0], differs[-1], *letters, cue("addressed").search(said[k]) is not None, end == ".", end == "!"]
        )
    return rows


def _describe_rules(text: str, shown: str, parts: Sequence[Sentence]) -> list[list[bool]]:
    """Tell what the rules say: the words after an announcement, and those that lead to it."""
    announced, mixed = find_announced(text, shown)
    quoted = list(find_hidden(text, shown))
    others = merge_spans([*announced, *quoted]) if mixed else []
    lead = find_lead_end(shown, others[0][0]) if others else 0
    return [
        [any(start < one.end and one.start < end for start, end in announced), mixed, bool(quoted), one.end <= lead]
        for one in parts
    ]


def _detect_language(text: str) -> str | None:
    return load_languages().detect(tokenize(text.replace(HIDDEN_LETTER, "")))


def hash_parts(shown: str, parts: Sequence[Sentence]) -> list[list[int]]:
    """Return the hashed features of each part: their places in the table of words."""
    said = [_split_words(shown[one.start : one.end]) for one in parts]
    return [sorted({zlib.crc32(one.encode()) % BUCKETS for one in _list_features(said, k)}) for k in range(len(parts))]


def _list_features(said: Sequence[Sequence[str]], k: int) -> Iterator[str]:
    words = said[k]
    for place, word in enumerate(words):
        yield f"1 {word}"
        yield f"2 {' '.join(words[place : place + 2])}"
    yield f"first {' '.join(words[:2])}"
    yield f"last {words[-1]}"
    for name, others in (
        ("before", said[:k][-3:]),
        ("after", said[k + 1 :][:2]),
        ("end", said[k + 1 :][-1:]),
        ("top", said[:k][:1]),
    ):
        for other in others:
            for place, word in enumerate(other[:24]):
                yield f"{name} {word}"
                yield f"{name} {' '.join(other[place : place + 2])}"


def _split_words(text: str) -> list[str]:
    return [word.lower().replace("’", "'").replace(HIDDEN_LETTER, "") or "quoted" for word in _WORD.findall(text)]
