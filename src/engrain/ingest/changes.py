"""Judge whether a new statement ends an earlier one: first which one is about the same matter, then if both can hold.

`bench/capture/train_aspects.py` makes the weights of both models.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engrain.core.model_weights import Weights, load_weights, multiply
from engrain.core.rules.change_cues import SIGNS, Cues, find_signs, read_cues
from engrain.core.rules.change_limits import (
    are_of_two_of_a_kind,
    names_work_in_passing,
    only_tells_extent,
    share_a_word,
    tells_a_switch,
)
from engrain.core.rules.change_values import gives_another_value, opposes_wish
from engrain.ingest.sentence_model import GRAM, scale_words

if TYPE_CHECKING:
    from engrain.ports.search import Matrix

WEIGHTS = "changes.npz"
BUCKETS = 8_192  # of hashed words and parts of words
MAX_CHARACTERS = 600  # of a statement that are hashed
MAX_SHARED, MIN_COMMON = 3, 2
# The chances from which a fact is ended, and from which it is only marked as earlier.
MIN_SAME, MIN_ENDED = 0.58, 0.5
MIN_ENDED_SURELY = 0.85  # of what the program remembered, and of an address that may be given for something else
MIN_ENDED_DOUBTFULLY = 0.6  # of what may be another thing: it is marked as earlier
MIN_WISH_ENDED = 0.7  # of a standing wish, beside which others of the same kind may hold
MIN_SAME_WISH = 0.95  # of a standing wish that shares no word with the statement
MIN_SAME_EARLIER, MIN_ENDED_EARLIER = 0.4, 0.3
_MANY = frozenset(("leisure", "pet", "skill", "volunteering", "project"))  # one may have several
_HABITS = frozenset(("routine",))
_WORK = frozenset(("job", "employer"))
_MIN_MANY = 0.25
_SHARPNESS = 12.0  # of the aspects' scores, which are near 0 and 1
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class JudgedStatement:
    """A statement with its vector, the chances of its aspects, and its matter."""

    text: str
    vector: Matrix
    aspects: Matrix
    cues: Cues
    slot: str | None = None

    @property
    def aspect(self) -> str:
        """The most likely aspect."""
        return list_aspects()[int(self.aspects.argmax())]


def read_statement(
    text: str, vector: Matrix, slot: str | None = None, weights: Weights | None = None
) -> JudgedStatement:
    return JudgedStatement(
        text, vector, judge_aspects(text, vector, weights or load_weights(WEIGHTS)), read_cues(text), slot
    )


def judge_aspects(text: str, vector: Matrix, weights: Weights) -> Matrix:
    """Return the chance of each aspect of `list_aspects`, from the words of a statement and its vector.

    The words tell what the vector of an English model misses in other languages.
    """
    places = hash_statement(text)
    words = weights["words"][places].sum(0) * scale_words(len(places))
    return spread_scores(vector @ weights["aspects"] + words + weights["aspects_bias"])


def hash_statement(text: str) -> list[int]:
    """Return the places of a text's words, and of each four letters of them, in the table of words."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower().replace("’", "'")[:MAX_CHARACTERS]):
        whole = f"^{'0' if word.isdigit() else word}$"
        found.add(whole)
        found.update(whole[start : start + GRAM] for start in range(max(1, len(whole) - GRAM + 1)))
    return sorted({zlib.crc32(one.encode()) % BUCKETS for one in found})


def spread_scores(scores: Matrix) -> Matrix:
    import numpy as np

    powers = np.exp(_SHARPNESS * (scores - scores.max()))
    spread: Matrix = powers / powers.sum()
    return spread


@cache
def list_aspects() -> list[str]:
    return [str(name) for name in load_weights(WEIGHTS)["names"]]


def leaves_standing(new: JudgedStatement, old: JudgedStatement) -> bool:
    """Tell if a statement surely leaves an older one standing, whatever the model says of the two."""
    if new.slot is not None and new.slot == old.slot:
        return False
    return are_of_two_of_a_kind(new.text, old.text) or only_tells_extent(new.text, old.text) or _is_of_work(new, old)


def is_doubtful(new: JudgedStatement, old: JudgedStatement) -> bool:
    """Tell if a statement probably is of something else than an older one: it only marks what it would end."""
    somebody = bool(new.cues.people) and not old.cues.people and old.cues.own and not new.cues.own
    somebody = somebody and len(new.cues.core & old.cues.core) < MIN_COMMON
    return somebody or _is_another(new, old)


def surely_ends(new: JudgedStatement, old: JudgedStatement, *, is_wish: bool) -> bool:
    """Tell if a statement that is about the matter of an older one gives another value for it."""
    if is_wish:
        return opposes_wish(new.text, old.text)
    return gives_another_value(new.text, old.text, (new.aspect, old.aspect))


def _is_another(new: JudgedStatement, old: JudgedStatement) -> bool:
    """Tell if a statement of a hobby, a pet or the like shares nothing with an older one, nor tells of a switch."""
    common = new.cues.terms & old.cues.terms or new.cues.values & old.cues.values or new.cues.people & old.cues.people
    if common or "refers" in find_signs(new.text) or tells_a_switch(new.text) or share_a_word(new.text, old.text):
        return False
    many = _MANY | _HABITS if "ended" in find_signs(new.text) else _MANY
    return old.aspect in many and float(old.aspects.max()) >= _MIN_MANY


def _is_of_work(new: JudgedStatement, old: JudgedStatement) -> bool:
    """Tell if only one of two statements is about the work that the other names in passing: "I run before work"."""
    passing = [names_work_in_passing(one.text) for one in (new, old)]
    other = old if passing[0] else new
    return passing[0] != passing[1] and other.aspect in _WORK


@dataclass(frozen=True, slots=True)
class Chances:
    """The chance that a known statement is the one that a new one is about, and that it does not hold beside that."""

    same: float = 0.0
    ended: float = 0.0

    @property
    def change(self) -> float:
        return self.same * self.ended

    @property
    def is_ended(self) -> bool:
        return self.same >= MIN_SAME and self.ended >= MIN_ENDED

    @property
    def is_earlier(self) -> bool:
        return self.same >= MIN_SAME_EARLIER and self.ended >= MIN_ENDED_EARLIER


def judge_known(new: JudgedStatement, state: Matrix, known: Sequence[JudgedStatement]) -> list[Chances]:
    """Judge each known statement. At most one is about the same matter. `state` is of the words of the new one."""
    import numpy as np

    if not known:
        return []
    weights = load_weights(WEIGHTS)
    rows = compare(new, known)
    # Along some axes of the vectors statements of one matter are alike, whatever is said of it.
    matter = multiply([one.vector for one in known], weights["axes"]) @ (new.vector @ weights["axes"])
    powers = np.exp(np.clip(rows @ weights["same"] + matter + weights["same_bias"], -30, 30))
    same = powers / (1 + powers.sum())
    own = state @ weights["state"] + weights["ended_bias"]
    # The last feature, how many are compared, tells nothing of whether both can hold.
    ended = 1 / (1 + np.exp(-np.clip(rows[:, :-1] @ weights["ended"] + own, -30, 30)))
    return [Chances(float(one), float(two)) for one, two in zip(same, ended, strict=True)]


def compare(new: JudgedStatement, known: Sequence[JudgedStatement]) -> Matrix:
    """Return a row of features for each known statement: signs, the aspects that both have, how many are compared."""
    import numpy as np

    signs = find_signs(new.text)
    flags = {name: float(name in signs) for name in (*SIGNS, "refers")}
    cosines = (np.stack([one.vector for one in known]) @ new.vector).tolist()
    common = np.sqrt(np.stack([one.aspects for one in known]) * new.aspects)
    pairs = zip(known, cosines, common.sum(1).tolist(), strict=True)
    rows = [_compare_pair(new, old, flags, cosine, aspect) for old, cosine, aspect in pairs]
    alone = [[2 * one] for _, one in rows]
    count = np.full((len(known), 1), math.log(len(known)) / 2)
    return np.hstack([[row for row, _ in rows], alone * common, count]).astype(np.float32)


def _compare_pair(
    new: JudgedStatement, old: JudgedStatement, flags: dict[str, float], cosine: float, aspect: float
) -> tuple[list[float], float]:
    """Return the features of a pair, and how much its common aspects count.

    One can have one city, but several pets. What comes beside something, or of somebody else, says nothing of that.
    """
    match = _compare_matter(new.cues, old.cues)
    cue = max(flags["ended"], flags["changed"])
    besides = max(flags["added"], flags["beside"], flags["passing"], flags["tentative"])
    touched, conflict = max(match["names"], match["terms"]), match["conflict"]
    own = float(new.cues.own)
    pair = [
        cosine, max(0.0, cosine - 0.45), cue * cosine, conflict * cue,
        flags["ended"] * touched, flags["changed"] * touched, besides * (1 - cue), flags["beside"] * cue,
        flags["beside"] * touched, flags["scoped"] * (1 - cue), flags["refers"] * cosine,
        conflict * own, conflict * (1 - own) * (1 - touched), match["unnamed"] * own, match["unnamed"] * touched,
        match["valued"] * match["core"], match["valued"] * (1 - touched), match["valued"] * cosine, own,
        float(new.slot is not None and old.slot is not None and new.slot != old.slot),
        float(new.slot is not None and new.slot == old.slot),
    ]  # fmt: skip
    matter = [aspect, aspect * cosine, cue * aspect, flags["scoped"] * aspect]
    return [*pair, *flags.values(), *match.values(), *matter], (1 - conflict) * (1 - besides)


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
