"""Judge whether a new statement ends an earlier one, by meaning, aspect, shared words and words of change.

`bench/capture/train_aspects.py` makes the weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from engrain.core.rules.change_cues import Cues, only_adds, read_cues

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

WEIGHTS = "changes.npz"
MAX_SHARED = 3
# The chance from which a fact is ended: with words of a change or an end, and without.
MIN_CHANCE, MIN_CHANCE_UNSAID = 0.25, 0.65
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


def is_ended(new: Said, chance: float) -> bool:
    said = not new.cues.found.isdisjoint(("ended", "changed", "negated"))
    return chance >= (MIN_CHANCE if said else MIN_CHANCE_UNSAID)


def choose_ended(new: Said, state: Matrix, known: Sequence[Said]) -> list[float]:
    """Return for each known statement the chance that the new one ends it. The rest to 1 is the chance of none.

    The more statements are known, the less likely is each of them. `state` is of the words of the new one.
    """
    import numpy as np

    if not known or only_adds(new.cues):
        return [0.0] * len(known)
    weights = load_weights()
    own = float(state @ weights["state"] + weights["change_bias"])
    scores = np.stack([compare(new, one, len(known)) for one in known]) @ weights["change"] + own
    powers = np.exp(np.clip(scores, -30, 30))
    return [float(one) for one in powers / (1 + powers.sum())]


def compare(new: Said, old: Said, known: int) -> Matrix:
    """Return the features of a pair: signs, and the aspects that both have. `known` statements are compared."""
    import numpy as np

    this, that = new.cues, old.cues
    cosine = float(new.vector @ old.vector)
    common = np.sqrt(new.aspects * old.aspects)
    aspect = float(common.sum())
    terms = this.terms & that.terms
    shared = min(MAX_SHARED, len(terms)) / MAX_SHARED
    share = len(terms) / max(1, min(len(this.terms), len(that.terms)))
    names = float(bool(this.names & that.names))
    touched = max(names, float(bool(terms)))
    conflict, unnamed = _conflicts(this, that), float(bool(that.people) and not this.people)
    ended, changed, added, passing = (float(one in this.found) for one in ("ended", "changed", "added", "passing"))
    cue, tentative, me = max(ended, changed), float("tentative" in this.found), float("me" in this.found)
    timed = float(this.has_time and that.has_time)
    # One can have one city, but several pets. What comes beside something, or of somebody else, says nothing of that.
    alone = (1 - conflict) * (1 - max(added, passing, tentative))
    signs = [
        cosine, max(0.0, cosine - 0.45), aspect, shared, share, names,
        ended, changed, added, passing, float(("negated" in this.found) != ("negated" in that.found)),
        float(bool(this.people & that.people)), conflict, float(this.refers), timed,
        cue * cosine, cue * aspect, conflict * cue, aspect * cosine,
        ended * max(share, names), changed * max(share, names), timed * share, added * share,
        float(this.refers) * cosine, float(new.slot is not None and old.slot is not None and new.slot != old.slot),
        float(new.slot is not None and new.slot == old.slot),
        touched, conflict * (1 - me) * (1 - touched), unnamed, unnamed * me, unnamed * touched,
        tentative, me, conflict * me, tentative * (1 - cue), passing * (1 - cue), added * (1 - cue),
        math.log(known) / 2,
    ]  # fmt: skip
    return np.concatenate([signs, 2 * alone * common]).astype(np.float32)


def _conflicts(new: Cues, old: Cues) -> float:
    """Return 1 if the new one is about somebody whom the old one does not mention."""
    return float(bool(new.people) and new.people.isdisjoint(old.people))


@cache
def load_weights(file: str = WEIGHTS) -> dict[str, Any]:
    import numpy as np

    with (
        (resources.files("engrain.core") / "data" / file).open("rb") as opened,
        np.load(opened, allow_pickle=False) as read,
    ):
        texts = ("names", "data")
        return {name: read[name] if name in texts else read[name].astype(np.float32) for name in read.files}
