"""Judge whether a new statement ends an earlier one, by meaning, aspect, shared words and words of change.

`bench/capture/train_aspects.py` makes the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from engrain.core.rules.change_cues import Cues, read_cues

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

WEIGHTS = "changes.npz"
MAX_SHARED = 3
_SHARPNESS = 12.0  # of the aspects' scores, which are near 0 and 1


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """A statement with its vector, the chances of its aspects and its signs."""

    text: str
    vector: Matrix
    aspects: Matrix
    cues: Cues
    slot: str | None = None


def read_statement(text: str, vector: Matrix, slot: str | None = None) -> Said:
    return Said(text, vector, judge_aspects(vector), read_cues(text), slot)


def judge_aspects(vector: Matrix) -> Matrix:
    """Return the chance of each aspect of `list_aspects`, from a statement's vector."""
    weights = load_weights()
    return spread_scores(vector @ weights["aspects"] + weights["aspects_bias"])


def spread_scores(scores: Matrix) -> Matrix:
    import numpy as np

    powers = np.exp(_SHARPNESS * (scores - scores.max()))
    spread: Matrix = powers / powers.sum()
    return spread


def list_aspects() -> list[str]:
    return [str(name) for name in load_weights()["names"]]


def choose_ended(new: Said, known: Sequence[Said]) -> list[float]:
    """Return for each known statement the chance that the new one ends it. The rest to 1 is the chance of none.

    The more statements are likely, the less likely is each of them.
    """
    import numpy as np

    if not known:
        return []
    weights = load_weights()
    scores = np.stack([compare(new, one) for one in known]) @ weights["change"] + weights["change_bias"]
    powers = np.exp(np.clip(scores, -30, 30))
    return [float(one) for one in powers / (1 + powers.sum())]


def compare(new: Said, old: Said) -> Matrix:
    """Return the features of a pair."""
    import numpy as np

    this, that = new.cues, old.cues
    cosine = float(new.vector @ old.vector)
    aspect = float(np.sqrt(new.aspects * old.aspects).sum())
    terms = this.terms & that.terms
    shared = min(MAX_SHARED, len(terms)) / MAX_SHARED
    share = len(terms) / max(1, min(len(this.terms), len(that.terms)))
    names = float(bool(this.names & that.names))
    conflict = _conflicts(this, that)
    ended, changed, added, passing = (float(one in this.found) for one in ("ended", "changed", "added", "passing"))
    cue = max(ended, changed)
    timed = float(this.has_time and that.has_time)
    return np.array(
        [
            cosine, max(0.0, cosine - 0.45), aspect, shared, share, names,
            ended, changed, added, passing, float(("negated" in this.found) != ("negated" in that.found)),
            float(bool(this.people & that.people)), conflict, float(this.refers), timed,
            cue * cosine, cue * aspect, conflict * cue, aspect * cosine,
            ended * max(share, names), changed * max(share, names), timed * share, added * share,
            float(this.refers) * cosine, float(new.slot is not None and old.slot is not None and new.slot != old.slot),
            float(new.slot is not None and new.slot == old.slot),
        ],
        np.float32,
    )  # fmt: skip


def _conflicts(new: Cues, old: Cues) -> float:
    """Return 1 if the two are about different people. A pronoun may mean anybody."""
    if new.people and old.people:
        return float(new.people.isdisjoint(old.people))
    if new.people:
        return 1.0
    return float(bool(old.people) and not new.refers and not new.names & old.names)


@cache
def load_weights() -> dict[str, Any]:
    import numpy as np

    with (
        (resources.files("engrain.core") / "data" / WEIGHTS).open("rb") as file,
        np.load(file, allow_pickle=False) as read,
    ):
        return {name: read[name] if name == "names" else read[name].astype(np.float32) for name in read.files}
