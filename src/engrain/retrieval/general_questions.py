"""Tell how far a question asks for general knowledge, which a memory seldom answers.

`bench/capture/train_questions.py` makes the weights, for the vectors of one embedding model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engrain.core.model_weights import load_weights
from engrain.retrieval.query import Question

if TYPE_CHECKING:
    from engrain.retrieval.ranking import Matrix

WEIGHTS = "questions.npz"
ABOUT_ME = "about_me"
# Questions to memories of things, not of a person, read as general ones as well: only the clear ones count.
CLEARLY_GENERAL, MOST_GENERAL = 0.5, 1.5


def measure_generality(vector: Matrix, question: Question, model_key: str) -> float:
    """Return from 0 to 1 how general a question is. Vectors of an unknown model tell nothing."""
    weights = load_weights(WEIGHTS)
    if str(weights["model"]) != model_key:
        return 0.0
    own = weights["question"]  # the last two are for the user's own pronouns, and for all questions
    score = -float(vector @ own[:-2] + (ABOUT_ME in question.asks) * own[-2] + own[-1])
    return min(max((score - CLEARLY_GENERAL) / (MOST_GENERAL - CLEARLY_GENERAL), 0.0), 1.0)
