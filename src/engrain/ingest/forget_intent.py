"""Find the requests to forget something in a message, by a linear model of their words and of the embedder's states.

`bench/capture/train_forget.py` makes the weights.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engrain.core.model_weights import load_weights
from engrain.core.rules.forget_lists import split_matters
from engrain.core.rules.forget_requests import (
    Word,
    find_matter,
    is_candidate,
    list_features,
    mentions_forgetting,
    only_mentions,
    read_words,
)
from engrain.core.text.passages import Span, split_sentences, trim_span

if TYPE_CHECKING:
    from engrain.ports.search import Matrix, TextStates

WEIGHTS = "forget.npz"
FEATURES = 1 << 16
MAX_REQUEST_CHARACTERS = 300
MAX_SENTENCES = 12
MIN_SCORE = 0.0  # above 0 a request is likelier than not
MAX_SENTENCES_BACK = 2  # in which the matter of "take it out" is looked for
MAX_AFTERTHOUGHT = 5  # words of a sentence that still belongs to the request: "All of it."


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """The matter of a request: the words from `start` to `end`. An empty topic means the message before.

    `everything` about it is meant, however often it was said.
    """

    start: int
    end: int
    topic: str
    everything: bool = False


def find_forget_topics(shown: str, states: TextStates | None = None) -> list[ForgetTopic]:
    """Return the requests of a message, whose words of others are blank. `states` are of its words, if it was read."""
    if not mentions_forgetting(shown):
        return []
    spans = [trim_span(shown, one.start, one.end) for one in split_sentences(shown)[:MAX_SENTENCES]]
    texts = [shown[slice(*span)] for span in spans]
    words = [read_words(one) for one in texts]
    found: list[ForgetTopic] = []
    for place in range(len(spans)):
        if len(texts[place]) > MAX_REQUEST_CHARACTERS or only_mentions(texts[place]) or not is_candidate(words[place]):
            continue
        if not _asks(spans[place], words, place, states) and not _lists(shown, spans[place], words, place, states):
            continue
        topic = _read_request(shown, spans, words, place)
        # "I don't want this in there. Delete it." is one request.
        if topic is not None and not (found and topic.start == found[-1].start):
            found.append(topic)
    named = [one for one in found if one.topic]
    return named if len(named) == 1 else found


def _asks(span: Span, words: Sequence[Sequence[Word]], place: int, states: TextStates | None) -> bool:
    state = states.pool_spans([span])[0] if states and span[1] <= len(states.text) else None
    return score_sentence(words, place, state) >= MIN_SCORE


def _lists(shown: str, span: Span, words: Sequence[Sequence[Word]], place: int, states: TextStates | None) -> bool:
    """Tell if a sentence lists matters, and asks to forget the first: the model was made of shorter ones."""
    parts = split_matters(shown[slice(*span)])
    if not parts:
        return False
    first = span[0] + parts[0][0], span[0] + parts[0][1]
    alone = [*words[:place], read_words(shown[slice(*first)]), *words[place + 1 :]]
    return is_candidate(alone[place]) and _asks(first, alone, place, states)


def score_sentence(words: Sequence[Sequence[Word]], place: int, state: Matrix | None = None) -> float:
    """Return how likely a sentence of a message asks to forget something. Without its state the words alone tell."""
    weights = load_weights(WEIGHTS)
    columns = list_columns(list_sentence_features(words, place))
    score = float(weights["intent"][columns].sum() / len(columns) ** 0.5 + weights["intent_bias"])
    return score if state is None else score + float((state - weights["intent_mean"]) @ weights["intent_state"])


def list_sentence_features(words: Sequence[Sequence[Word]], place: int) -> set[str]:
    before = words[place - 1] if place else ()
    return list_features(words[place], before, words[place + 1] if place + 1 < len(words) else ())


def list_columns(features: Iterable[str]) -> list[int]:
    return sorted({zlib.crc32(one.encode()) % FEATURES for one in features})


def _read_request(
    shown: str, spans: Sequence[tuple[int, int]], words: Sequence[Sequence[Word]], place: int
) -> ForgetTopic | None:
    (start, end), follows = spans[place], words[place + 1] if place + 1 < len(words) else ()
    matter = find_matter(shown[start:end])
    if matter is None or not matter.words:
        for before in range(place - 1, max(-1, place - 1 - MAX_SENTENCES_BACK), -1):
            earlier = find_matter(shown[slice(*spans[before])])
            if earlier is not None and earlier.words:
                start, matter = spans[before][0], earlier
                break
    if matter is None:
        return None
    said = [*words[place], *(follows if len(follows) <= MAX_AFTERTHOUGHT else ())]
    return ForgetTopic(start, end, matter.text if matter.words else "", any("every" in one.classes for one in said))
