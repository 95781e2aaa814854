"""Judge by a small trained model which sentences of a message say something that lasts, and of which kind.

The model has one hidden layer over the pooled states of the local embedder's words and over the vector of the message,
and is linear in hashed words and parts of words.
`bench/capture/train.py` makes its weights from `bench/capture/training`.
"""

from __future__ import annotations

import math
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engrain.core.model_weights import Weights, load_weights, multiply
from engrain.core.rules.statements import load_statement_rules
from engrain.core.text.passages import Clause, Sentence

if TYPE_CHECKING:
    from engrain.ports.search import Matrix, TextStates

BUCKETS = 32_768  # of hashed words and parts of words
WORDS_SCALE, VECTOR_SCALE = 4.0, 6.0
GRAM = 4  # letters
WEIGHTS = "sentence_model.npz"
TAGS = "sentence_tags.toml"
KEPT_KINDS = ("fact", "preference", "instruction", "decision", "correction")
_CONTEXT_CHARACTERS = 40
_SIGNS = ("void_both", "void_clause", "void_sentence", "passing", "reported", "own_word")
# Words that make a sentence of its own: a subject, a verb, a question.
_OWN_TAGS = frozenset(("i", "we", "my", "you", "they", "if", "say", "ask", "order", "like", "be", "have"))
_SUBJECT_TAGS = frozenset(("i", "we", "my", "they", "if"))
_MAX_SUBJECT = 20  # characters of its first word
_ADDING = ("", "and", "but", "plus", "und", "aber", "y", "pero", "et", "mais")  # between two statements
# Words that refer back, and a subject whose verb stands before: "my sister lives in Turin and my brother in Bari".
_REFERRING = re.compile(
    r"\b(?:it|them|there|too|as well|either|both|neither|auch|dort|davon|beide|también|tampoco|allí|aussi|là)\b"
    r"|^\w+ \w+ (?:in|at|on|to|for|from|with|en|a|de|à|aus|bei|mit|nach)\b",
    re.I,
)
_OWN_SUBJECTS = ("i", "we", "my")
_TOPIC_TAGS = frozenset(
    ("kin", "person", "pet", "day", "month", "live", "work", "body", "eat", "money", "tech", "change")
)
_MATTER_TAGS = frozenset(("kin", "person", "pet", "live", "work", "body", "tech"))
MIN_KNOWN = 0.6  # from which a sentence about somebody known is kept
_KNOWN_PERSON = "my daughter"  # what the model reads for the name of somebody known, in every language
_PREPOSITIONS = ("am", "du")  # in German and French; elsewhere a verb and a subject
MAX_FRAGMENT_WORDS = 12
_MIN_WORDS = 3  # a shorter sentence belongs to its neighbour

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?|[^\w\s]")
_LETTERS = re.compile(r"\w+")
_NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one sentence. `drop`: it is so surely not worth keeping that a rule must be wrong.

    A statement that is kept but not `sure` counts less.
    """

    keep: bool
    drop: bool
    kind: str
    sure: bool = True


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


def is_fragment(text: str, most: int = MAX_FRAGMENT_WORDS) -> bool:
    """Tell if a few words have neither a subject nor a verb, as "York now, little house near the river"."""
    words = _split_words(text)
    tags = {_load_tags().get(word) for word in words if word not in _PREPOSITIONS}
    return len(words) <= most and tags.isdisjoint(_OWN_TAGS)


def has_subject(text: str) -> bool:
    """Tell if words speak of the speaker or somebody of theirs, or say when something holds: "when you write code"."""
    return not _SUBJECT_TAGS.isdisjoint(_load_tags().get(word, "") for word in _split_words(text))


def begins_with_own_subject(text: str) -> bool:
    """Tell if words begin with the speaker or somebody of theirs: "I …", "we …", "my sister …"."""
    first = _WORD.match(text.lower().replace("’", "'"))
    return first is not None and _load_tags().get(first[0]) in _OWN_SUBJECTS


def begins_as_task(text: str) -> bool:
    """Tell if a text begins with an order or a question: "translate to German: …", "can you sum this up? …"."""
    first = _WORD.search(text.lower())
    return first is not None and tag_word(first[0]) in ("order", "ask")


def split_by_subject(text: str, clauses: Sequence[Clause], end: int) -> list[Sentence]:
    """Return the parts of a statement that each begin with the speaker or somebody of theirs; none if there are no two.

    Between two of them stands a comma, or a word that only adds the second: "I'm vegan and we live in Oslo". A part
    that refers back, as in "and my wife hates it", needs the one before.
    """
    firsts = [place for place, one in enumerate(clauses) if not place or one.connector.lower() in _ADDING]
    own = [n for n in firsts if begins_with_own_subject(text[(at := clauses[n].start) : min(end, at + _MAX_SUBJECT)])]
    if own[:1] != firsts[:1]:
        return []
    ends = (*(clauses[place - 1].end for place in own[1:]), end)
    parts = [Sentence(clauses[place].start, last, is_question=False) for place, last in zip(own, ends, strict=True)]
    whole = all(_count_words(text, part) >= _MIN_WORDS for part in parts)
    refers = any(_REFERRING.search(text[part.start : part.end]) for part in parts[1:])
    return parts if whole and not refers else []


def has_own_matter(text: str) -> bool:
    """Tell if a few words name what they are about: "two dogs", and not "first time"."""
    return not _MATTER_TAGS.isdisjoint(_load_tags().get(word, "") for word in _split_words(text))


def has_topic(text: str) -> bool:
    """Tell if a word is of a matter that lasts: a person, health, food, work, a date."""
    return not _TOPIC_TAGS.isdisjoint(_load_tags().get(word, "") for word in _split_words(text))


def tag_word(word: str) -> str:
    """Return the meaning of a word in lower case, such as "kin", or nothing."""
    return _load_tags().get(word, "")


def judge_sentences(
    read: TextStates,
    sentences: Sequence[Sentence],
    weights: Weights | None = None,
    known: Mapping[Sentence, str] | None = None,
) -> list[Verdict]:
    """Judge the sentences of a message, by the weights of the package if no others are given.

    `known` has the name of somebody of the user's that a sentence begins with: it counts as "my daughter".
    """
    import numpy as np

    if not sentences:
        return []
    weights = weights or load_weights(WEIGHTS)
    pooled = read.pool_spans([(one.start, one.end) for one in sentences])
    states = scale_states(pooled, weights["mean"], weights["spread"])
    scores = score_rows(join_vector(states, read.vector), hash_words(read.text, sentences, known or {}), weights)
    sure = 1 / (1 + np.exp(-scores[:, 0]))
    kinds = np.argmax(scores[:, 1:], axis=1)
    least, threshold, surely = (float(weights[name]) for name in ("least", "threshold", "sure"))
    limits = [MIN_KNOWN if known and one in known else threshold for one in sentences]
    return [
        Verdict(bool(one >= limit), bool(one < least), KEPT_KINDS[kind], bool(one >= surely))
        for one, kind, limit in zip(sure, kinds, limits, strict=True)
    ]


def score_rows(inputs: Matrix, words: Sequence[Sequence[int]], weights: Weights) -> Matrix:
    """Return for each row how well it is worth keeping, then how well each kind fits."""
    import numpy as np

    hidden = np.maximum(multiply(inputs, weights["hidden"]) + weights["hidden_bias"], 0)
    known = np.stack([weights["words"][places].sum(0) * scale_words(len(places)) for places in words])
    scores: Matrix = multiply(hidden, weights["out"]) + multiply(inputs, weights["straight"]) + known + weights["bias"]
    return scores


def scale_words(count: int) -> float:
    """Return the value of each of a sentence's hashed words: a long sentence weighs no more than a short one."""
    return WORDS_SCALE / math.sqrt(max(1, count))


def scale_states(states: Matrix, mean: Any, spread: Any) -> Matrix:
    import numpy as np

    scaled: Matrix = ((states - mean) / spread * (8 / np.sqrt(states.shape[1]))).astype(np.float32)
    return scaled


def join_vector(states: Matrix, vector: Matrix) -> Matrix:
    """Return the scaled states of sentences, each with the vector of their message: what it is about."""
    import numpy as np

    return np.hstack([states, np.tile(vector * VECTOR_SCALE, (len(states), 1))])


def hash_words(
    text: str, sentences: Sequence[Sentence], known: Mapping[Sentence, str] = MappingProxyType({})
) -> list[list[int]]:
    """Return the hashed features of each sentence: their places in the table of words."""
    named = ((one, known.get(one, "")) for one in sentences)
    return [
        sorted({zlib.crc32(feature.encode()) % BUCKETS for feature in _list_features(text, one, name)})
        for one, name in named
    ]


def _list_features(text: str, sentence: Sentence, name: str = "") -> Iterator[str]:
    part = (_KNOWN_PERSON if name else "") + text[sentence.start + len(name) : sentence.end]
    words = ["0" if word.isdigit() else word for word in _split_words(part)]
    for place, word in enumerate(words):
        yield f"1 {word}"
        yield f"2 {' '.join(words[place : place + 2])}"
        yield f"3 {' '.join(words[place : place + 3])}"
        whole = f"^{word}$"
        for start in range(max(1, len(whole) - GRAM + 1)):
            yield f"g {whole[start : start + GRAM]}"
    for place, word in enumerate(words[:3]):
        yield f"at {place} {word}"
    yield from _list_tags(words)
    yield f"last {words[-1] if words else ''}"
    for word in _split_words(text[max(0, sentence.start - _CONTEXT_CHARACTERS) : sentence.start])[-2:]:
        yield f"before {word}"
    for word in _split_words(text[sentence.end : sentence.end + _CONTEXT_CHARACTERS])[:2]:
        yield f"after {word}"
    for sign in _SIGNS:
        if load_statement_rules().sign(sign).search(part):
            yield f"sign {sign}"
    yield f"asks {load_statement_rules().sign('question').match(part) is not None}"
    yield f"length {min(8, len(words) // 2)}"
    yield f"first {sentence.start < 3}"
    yield f"question {sentence.is_question}"
    yield f"quote {any(mark in part for mark in '“”«»')} {part.count(chr(34)) > 1}"
    yield f"digit {any(letter.isdigit() for letter in part)}"
    yield f"name {_NAME.search(part) is not None}"
    yield f"code {'`' in part or '()' in part}"


def _list_tags(words: Sequence[str]) -> Iterator[str]:
    """Yield the tags of the words, those that follow each other, and each with the word beside it."""
    known = _load_tags()
    tagged = [(place, known[word]) for place, word in enumerate(words) if word in known]
    for number, (place, tag) in enumerate(tagged):
        yield f"tag {tag}"
        yield f"tag {tag} {min(place, 4)}"
        yield f"tags {tag} {words[place + 1] if place + 1 < len(words) else ''}"
        yield f"tags {' '.join(one for _, one in tagged[number : number + 2])}"
        yield f"tags {' '.join(one for _, one in tagged[number : number + 3])}"
    yield f"no tags {not tagged}"


@cache
def _load_tags() -> dict[str, str]:
    content = tomllib.loads((resources.files("engrain.core") / "data" / TAGS).read_text("utf-8"))
    return {word: tag for tag, words in content.items() for word in words.split()}


def _split_words(text: str) -> list[str]:
    return [word.lower().replace("’", "'") for word in _WORD.findall(text)]


def _count_words(text: str, sentence: Sentence) -> int:
    return len(_LETTERS.findall(text, sentence.start, sentence.end))
