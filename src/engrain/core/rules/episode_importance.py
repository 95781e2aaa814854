"""Score how much an episode matters, with reasons, and how that fades with time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from engrain.core.model.items import Citation
from engrain.core.text.tokenizer import extract_terms

EpisodeKind = Literal["turn", "tool", "decision", "error", "resolution", "note"]
EPISODE_KINDS: tuple[EpisodeKind, ...] = get_args(EpisodeKind)

# The importance is the sum of the parts, at most 1. docs/explanation/episodes.md has the reasons for the numbers.
BASE_PART = 0.1
FAILURE_PART = 0.3
RESOLUTION_PART = 0.6
DECISION_PART = 0.6
EXPLICIT_PART = 0.6
MAX_NOVELTY_PART = 0.2

# From here on an episode becomes an item when it is written: later, the store may have expired it.
MIN_PROMOTED_IMPORTANCE = 0.7
HALF_LIFE_SECONDS = 86_400.0
# The half-life at importance 1, as a multiple of the half-life at importance 0.
MAX_HALF_LIFE_FACTOR = 7.0

# A text needs so many words to be wholly new: "ok" says nothing new, even for the first time.
_MIN_NOVEL_WORDS = 8
_MAX_READ_CHARACTERS = 2_000
# Times, addresses, ids and measured values differ each time the same failure happens.
_VARYING_PART = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+(?:[.:]\d+)+|\d{5,}")


@dataclass(frozen=True, slots=True)
class EpisodeEvent:
    """An event as it is known when it is written.

    `resolves`: it is one half of an error and its resolution. `explicit`: somebody asked to remember it.
    `novelty` is the share of its words that are new in the session, None if not measured.
    The event is forgotten with anything that it `cites`. `occurred_at` is the time of an event of the past.
    """

    kind: EpisodeKind
    text: str
    role: str | None = None
    failed: bool = False
    resolves: bool = False
    explicit: bool = False
    novelty: float | None = None
    cites: tuple[Citation, ...] = ()
    occurred_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportanceScore:
    """An importance from 0 to 1. `reasons` name its parts, which may sum to more than 1."""

    importance: float
    reasons: tuple[tuple[str, float], ...]

    @property
    def promotes(self) -> bool:
        return self.importance >= MIN_PROMOTED_IMPORTANCE


def score_importance(event: EpisodeEvent) -> ImportanceScore:
    reasons = [("happened", BASE_PART)]
    if event.failed or event.kind == "error":
        reasons.append(("failure", FAILURE_PART))
    if event.resolves or event.kind == "resolution":
        reasons.append(("resolution", RESOLUTION_PART))
    if event.kind == "decision":
        reasons.append(("decision", DECISION_PART))
    # The output of a tool is data: it cannot ask to be remembered.
    if event.explicit and event.role != "tool":
        reasons.append(("explicit", EXPLICIT_PART))
    if event.novelty:
        reasons.append(("novelty", round(MAX_NOVELTY_PART * min(1.0, max(0.0, event.novelty)), 3)))
    return ImportanceScore(min(1.0, round(sum(part for _, part in reasons), 3)), tuple(reasons))


def measure_novelty(text: str, before: Sequence[str]) -> float:
    """Return the share of the text's words that no earlier text has, from 0 to 1."""
    words = set(extract_terms(text[:_MAX_READ_CHARACTERS]))
    known = {term for earlier in before for term in extract_terms(earlier[:_MAX_READ_CHARACTERS])}
    return len(words - known) / max(len(words), _MIN_NOVEL_WORDS)


def decay_importance(importance: float, age_seconds: float) -> float:
    """Halve the importance after a day if it is near 0, after a week if it is near 1.

    Of two events at the same time, the more important one stays so forever.
    """
    half_life = HALF_LIFE_SECONDS * (1 + (MAX_HALF_LIFE_FACTOR - 1) * importance)
    return float(importance * 0.5 ** (max(0.0, age_seconds) / half_life))


def make_repeat_key(kind: EpisodeKind, text: str, who: str | None = None, failed: bool = False) -> str:
    """Return a hash that is equal for events that repeat each other. `who` is the tool or the speaker's role.

    Case and white space do not count. In a failure, times, addresses and long numbers do not count either.
    """
    said = " ".join(text[:_MAX_READ_CHARACTERS].casefold().split())
    if failed or kind == "error":
        said = _VARYING_PART.sub("#", said)
    parts = (kind, who or "", said)
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
