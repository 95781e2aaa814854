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

from engrain.core.rules.change_cues import SIGNS, Cues, find_signs, only_adds, read_cues

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

WEIGHTS = "changes.npz"
MAX_SHARED = 3
# The chance from which a fact is ended, and a lower one with words of a change or an end.
MIN_CHANCE, MIN_CHANCE_SAID = 0.6, 0.35
_SHARPNESS = 12.0  # of the aspects' scores, which are near 0 and 1


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """A statement with its vector, the chances of its aspects, and its matter."""

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
    said = new.cues.negated or not find_signs(new.text).isdisjoint(("ended", "changed"))
    return chance >= (MIN_CHANCE_SAID if said else MIN_CHANCE)


def choose_ended(new: Said, state: Matrix, known: Sequence[Said]) -> list[float]:
    """Return for each known statement the chance that the new one ends it. The rest to 1 is the chance of none.

    The more statements are known, the less likely is each of them. `state` is of the words of the new one.
    """
    import numpy as np

    if not known or only_adds(find_signs(new.text)):
        return [0.0] * len(known)
    weights = load_weights()
    own = float(state @ weights["state"] + weights["change_bias"])
    scores = np.stack([compare(new, one, len(known)) for one in known]) @ weights["change"] + own
    powers = np.exp(np.clip(scores, -30, 30))
    return [float(one) for one in powers / (1 + powers.sum())]


def compare(new: Said, old: Said, known: int) -> Matrix:
    """Return the features of a pair: signs, and the aspects that both have. `known` statements are compared."""
    import numpy as np

    signs = find_signs(new.text)
    common = np.sqrt(new.aspects * old.aspects)
    match = _compare_matter(new.cues, old.cues)
    cosine, aspect = float(new.vector @ old.vector), float(common.sum())
    flags = {name: float(name in signs) for name in (*SIGNS, "refers")}
    cue = max(flags["ended"], flags["changed"])
    besides = max(flags["added"], flags["beside"], flags["passing"], flags["tentative"])
    touched, conflict = max(match["names"], match["terms"]), match["conflict"]
    own = float(new.cues.own)
    pair = [
        cosine, max(0.0, cosine - 0.45), aspect, aspect * cosine, cue * cosine, cue * aspect, conflict * cue,
        flags["ended"] * touched, flags["changed"] * touched, besides * (1 - cue), flags["beside"] * cue,
        flags["beside"] * touched, flags["scoped"] * (1 - cue), flags["scoped"] * aspect, flags["refers"] * cosine,
        conflict * own, conflict * (1 - own) * (1 - touched), match["unnamed"] * own, match["unnamed"] * touched,
        match["valued"] * match["core"], match["valued"] * (1 - touched), match["valued"] * cosine, own,
        float(new.slot is not None and old.slot is not None and new.slot != old.slot),
        float(new.slot is not None and new.slot == old.slot), math.log(known) / 2,
    ]  # fmt: skip
    # One can have one city, but several pets. What comes beside something, or of somebody else, says nothing of that.
    alone = (1 - conflict) * (1 - besides)
    return np.concatenate([[*pair, *flags.values(), *match.values()], 2 * alone * common]).astype(np.float32)


def _compare_matter(new: Cues, old: Cues) -> dict[str, float]:
    """Compare the words, names, people and kinds of values of two statements."""
    terms, core, values = new.terms & old.terms, new.core & old.core, new.values & old.values
    names = new.names & old.names
    return {
        "terms": float(bool(terms)),
        "shared": min(MAX_SHARED, len(terms)) / MAX_SHARED,
        "share": len(terms) / max(1, min(len(new.terms), len(old.terms))),
        "core": len(core) / max(1, min(len(new.core), len(old.core))),
        "names": float(bool(names)),
        "other names": float(bool(new.names and old.names and not names)),
        "people": float(bool(new.people & old.people)),
        "conflict": float(bool(new.people) and new.people.isdisjoint(old.people)),
        "unnamed": float(bool(old.people) and not new.people),
        "valued": float(bool(values)),
        "same values": len(values) / max(1, len(new.values | old.values)),
        "denied": float(old.negated and not new.negated),
        "denies": float(new.negated and not old.negated),
        "not own": float(old.own and not new.own),
        "length": math.log1p(len(new.terms)) / 3,
        "old length": math.log1p(len(old.terms)) / 3,
    }


@cache
def load_weights(file: str = WEIGHTS) -> dict[str, Any]:
    import numpy as np

    with (
        (resources.files("engrain.core") / "data" / file).open("rb") as opened,
        np.load(opened, allow_pickle=False) as read,
    ):
        texts = ("names", "data")
        return {name: read[name] if name in texts else read[name].astype(np.float32) for name in read.files}
