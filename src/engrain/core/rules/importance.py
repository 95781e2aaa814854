"""How much something that happened matters, why, and how that fades with time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engrain.core.model.items import Citation
from engrain.core.text.tokenizer import extract_terms

EpisodeKind = Literal["turn", "tool", "decision", "error", "resolution", "note"]
EPISODE_KINDS: tuple[EpisodeKind, ...] = get_args(EpisodeKind)

# Each part is added; the sum is at most 1. docs/episodes.md has the reasons for the numbers.
BASE = 0.1
FAILURE = 0.3
RESOLUTION = 0.6
DECISION = 0.6
EXPLICIT = 0.6
NOVELTY = 0.2

# From here on an episode lasts: it becomes an item when it is written, because a store's expiry waits for nobody.
MIN_PROMOTED_IMPORTANCE = 0.7
HALF_LIFE_SECONDS = 86_400.0
# The half-life of something of importance 1, in half-lives of something of importance 0.
SLOWEST = 7.0

# How many words make a text that can be wholly new: "ok" says nothing new, even for the first time.
_ENOUGH = 8
_READ = 2_000
# What differs each time one and the same failure happens: times, addresses, ids, measured values.
_PASSING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+(?:[.:]\d+)+|\d{5,}")


@dataclass(frozen=True, slots=True)
class EpisodeEvent:
    """What is known of an event when it is written.

    `resolves`: it is one half of an error and its resolution. `explicit`: somebody asked for it to be remembered.
    `novelty` is the share of its words that are new in the session, None if nobody looked. It goes when something that
    it `cites` is forgotten.
    """

    kind: EpisodeKind
    text: str
    role: str | None = None
    failed: bool = False
    resolves: bool = False
    explicit: bool = False
    novelty: float | None = None
    cites: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportanceScore:
    """`reasons` name every part of the importance; together they may be more than 1, which it never is."""

    importance: float
    reasons: tuple[tuple[str, float], ...]

    @property
    def promotes(self) -> bool:
        return self.importance >= MIN_PROMOTED_IMPORTANCE


def score_importance(happened: EpisodeEvent) -> ImportanceScore:
    reasons = [("happened", BASE)]
    if happened.failed or happened.kind == "error":
        reasons.append(("failure", FAILURE))
    if happened.resolves or happened.kind == "resolution":
        reasons.append(("resolution", RESOLUTION))
    if happened.kind == "decision":
        reasons.append(("decision", DECISION))
    # The output of a tool is data: it cannot ask to be remembered.
    if happened.explicit and happened.role != "tool":
        reasons.append(("explicit", EXPLICIT))
    if happened.novelty:
        reasons.append(("novelty", round(NOVELTY * min(1.0, max(0.0, happened.novelty)), 3)))
    return ImportanceScore(min(1.0, round(sum(part for _, part in reasons), 3)), tuple(reasons))


def measure_novelty(text: str, before: Sequence[str]) -> float:
    """The share of the text's words that none of the texts before it has, from 0 to 1."""
    words = set(extract_terms(text[:_READ]))
    known = {term for one in before for term in extract_terms(one[:_READ])}
    return len(words - known) / max(len(words), _ENOUGH)


def decay_importance(importance: float, age_seconds: float) -> float:
    """What is left of an importance: half of it after a day for what hardly matters, after a week for what most does.

    Of two that happened together, the one that mattered more still does at every later time.
    """
    life = HALF_LIFE_SECONDS * (1 + (SLOWEST - 1) * importance)
    return float(importance * 0.5 ** (max(0.0, age_seconds) / life))


def make_repeat_key(kind: EpisodeKind, text: str, who: str | None = None, failed: bool = False) -> str:
    """Two events with the same key are the same thing happening again; `who` is the tool or the speaker's role.

    Case and white space play no part, nor in a failure times, addresses and long numbers. A hash: it tells no words.
    """
    said = " ".join(text[:_READ].casefold().split())
    if failed or kind == "error":
        said = _PASSING.sub("#", said)
    parts = (kind, who or "", said)
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
