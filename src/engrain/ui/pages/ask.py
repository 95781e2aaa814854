"""Ask: what recall finds, why, what it left out, and the block for the model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from engrain import Hit, Item, Omitted
from engrain.core.model.items import KINDS
from engrain.ui.page_request import Visit
from engrain.ui.text import Span

DEFAULT_HITS, MAX_HITS = 8, 100
# Each part of a score, in words. docs/explanation/ranking.md has the weights.
PARTS = {
    "meaning": "close in meaning",
    "words": "the same words, rare ones count more",
    "cover": "share of the question's words",
    "cover before": "words of the question in the turn before",
    "words before": "words of the turn before it",
    "words after": "words of the turn after it",
    "session": "its session fits as a whole",
    "another speaker": "said by somebody else than the question names",
    "date": "the named date fits",
    "number or time": "the question asks for a number or time, and it has one",
    "instruction": "a standing instruction on this topic",
    "preference": "a preference on this topic",
    "only asks": "it is only a question itself",
    "answers, by words": "it answers a turn with these words",
    "answers, by meaning": "it answers a turn of this meaning",
    "about me, assistant's": "a question about the user, said by the assistant",
    "about you, assistant's": "a question about the assistant, said by it",
    "relation": "linked to what was found",
    "importance": "its importance",
    "pinned": "it is pinned",
    "trust": "trust in its source",
    "recency": "how new it is",
}


@dataclass(frozen=True)
class Question:
    text: str
    n: int
    budget: int | None
    as_of: datetime | None
    floor: float | None
    kind: str


def show_ask(visit: Visit) -> Response:
    asked = _read(visit)
    values: dict[str, Any] = {"asked": asked, "kinds": KINDS, "found": None, "parts": PARTS}
    if asked.text:
        found = visit.memory.recall(
            asked.text, n=asked.n, budget=asked.budget, as_of=asked.as_of, min_relevance=asked.floor,
            where={"kind": asked.kind} if asked.kind else None,
        )  # fmt: skip
        best = max((sum(part for part in hit.score_parts.values() if part > 0) for hit in found.hits), default=1.0)
        left_out = [(omitted, _load_items(visit, omitted)) for omitted in found.omitted]
        values |= {"found": found, "best": best or 1.0, "left_out": left_out, "mark_span": _mark_span}
    if visit.by_htmx:
        answer = visit.fragment("_answer.html", **values)
        answer.headers["hx-replace-url"] = visit.link("ask", **_to_query(asked))
        return answer
    return visit.page("ask.html", **values)


def show_prompt(visit: Visit) -> Response:
    """The whole text that `memory.prompt` returns for a request."""
    asked = _read(visit)
    return visit.fragment("_prompt.html", text=visit.memory.prompt(asked.text, budget=asked.budget))


def _read(visit: Visit) -> Question:
    n, budget = visit.number("n"), visit.number("budget")
    kind = visit.query("kind")
    return Question(
        text=visit.query("q"),
        n=DEFAULT_HITS if n is None else min(MAX_HITS, max(1, int(n))),
        budget=None if budget is None else max(0, int(budget)),
        as_of=visit.time("as_of"),
        floor=visit.number("floor"),
        kind=kind if kind in KINDS else "",
    )


def _to_query(asked: Question) -> dict[str, Any]:
    return {
        "q": asked.text, "n": "" if asked.n == DEFAULT_HITS else asked.n, "budget": asked.budget,
        "as_of": asked.as_of.isoformat(timespec="seconds") if asked.as_of else "", "floor": asked.floor,
        "kind": asked.kind,
    }  # fmt: skip


def _load_items(visit: Visit, omitted: Omitted) -> list[Item]:
    return [item for item in map(visit.memory.get, omitted.best) if item is not None]


def _mark_span(hit: Hit) -> list[Span]:
    """The passage that was found, if it is not the whole item."""
    return [] if hit.span == (0, len(hit.item.text)) else [hit.span]
