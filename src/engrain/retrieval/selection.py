"""Select the hits to return: relevant, at most n, without duplicates, within the budget, not all of one source."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engrain.core.identity import Scope
from engrain.core.model.items import TRUST, Item
from engrain.core.model.queries import OutdatedSpan
from engrain.core.model.recall import (
    ContextFact,
    Hit,
    Omitted,
    OutdatedText,
    Reason,
    Recall,
    Section,
    choose_heading,
    render_block,
)
from engrain.core.rules.own_words import PASTED
from engrain.core.text.passages import find_sentence_spans, split_passages
from engrain.core.text.tokenizer import extract_terms, normalize_unicode, tokenize
from engrain.core.tokens import CountTokens
from engrain.retrieval.query import Question
from engrain.retrieval.ranking import Ranking

SESSION_PENALTY = 0.3  # for each further item of a session already picked, when the question wants a list
SPREAD_POOL_SIZE = 60
MAX_OMITTED_IDS = 3
# A message a little longer than a passage is returned whole: cutting it would save nothing.
MAX_WHOLE_CHARACTERS = 700
MAX_CONTEXT_SHARE = 0.4  # of the budget, for the current session and recent events
MIN_SUBSTITUTE_SHARE = 0.5  # of the relevance of a hit that did not fit: a less relevant one does not replace it
MIN_TRUST = TRUST["agent"]  # pages, tools, files and pasted texts are below it: anybody may have written them
MAX_UNTRUSTED_SHARE = 0.4  # of the hits and of the budget, while trusted hits are relevant


class Candidate(NamedTuple):
    """A ranked candidate of one scope."""

    scope: int
    row: int
    id: str
    score: float
    relevance: float
    source: str | None
    trusted: bool = True


# A quarter of the time of Candidate(…), which calls into Python for each.
_make_candidate: Callable[[tuple[Any, ...]], Candidate] = partial(tuple.__new__, Candidate)


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The tokens that the block may have, and the query's terms, by which a long hit is shortened."""

    tokens: int | None  # None: no limit
    count: CountTokens
    terms: frozenset[int] = frozenset()

    def fit_hit(self, hit: Hit, used: int) -> Hit | None:
        """Return the hit, whole or shortened to its best sentences, or None if there is no room for it."""
        if self._fits(hit, used):
            return hit
        spans = find_sentence_spans(hit.item.text, *hit.span)
        matches = [len(self.terms.intersection(extract_terms(hit.item.text[left:right]))) for left, right in spans]
        if len(spans) < 2:
            return None
        first = last = max(range(len(spans)), key=lambda number: (matches[number], -number))
        fitting: Hit | None = None
        while self._fits(shorter := shorten_hit(hit, (spans[first][0], spans[last][1])), used):
            fitting = shorter
            # Only adjacent sentences join, so that the text stays in one piece.
            after = matches[last + 1] if last + 1 < len(spans) else 0
            before = matches[first - 1] if first > 0 else 0
            if not after and not before:
                break
            first, last = (first, last + 1) if after >= before else (first - 1, last)
        return fitting

    def fit_context(self, context: tuple[Section, ...]) -> tuple[Section, ...]:
        """Shorten each section from its end until it fits into its part of the context's share.

        The parts are even. A section that needs less leaves the rest to those behind it.
        """
        if self.tokens is None or not context:
            return context
        left, shortened = int(self.tokens * MAX_CONTEXT_SHARE), []
        for number, section in enumerate(context):
            room, lines = left // (len(context) - number), section.lines
            while lines and self.count(str(Section(section.title, lines))) > room:
                lines = lines[:-1]
            if lines:
                shortened.append(Section(section.title, lines))
                left -= self.count(str(shortened[-1]))
        return tuple(shortened)

    def _fits(self, hit: Hit, used: int) -> bool:
        return self.tokens is None or used + self.count(str(hit)) <= self.tokens


@dataclass(frozen=True, slots=True)
class Selection:
    selected: list[Candidate]
    omitted: dict[Reason, list[Candidate]]


def list_candidates(ranking: Ranking, scope: int, question: Question) -> list[Candidate]:
    """List all candidates of a scope, best first; a newer id wins a tie."""
    items, score = ranking.table.items, ranking.score
    places = score.argsort()[::-1]
    order: list[int] = places.tolist()
    ordered = score[places]
    if (ordered[1:] == ordered[:-1]).any():
        order.sort(key=lambda row: (score[row], items.ids[row]), reverse=True)
    if question.wants_several:
        order = _spread_sessions(order, ranking)
    if "summary" in question.asks:
        order = _add_replies(order, ranking.table.reply.tolist())
    places = np.array(order, dtype=np.int64)
    ids = map(items.ids.__getitem__, order)
    columns = (score, ranking.relevance, items.source, _find_trusted(ranking))
    values = (column[places].tolist() for column in columns)
    return list(map(_make_candidate, zip(repeat(scope, len(order)), order, ids, *values, strict=True)))


def _find_trusted(ranking: Ranking) -> npt.NDArray[np.bool_]:
    """Tell for each row if only the user or the program can have written it.

    A pasted message is not the user's, and an assistant's answer to a tool's result may repeat that result.
    """
    items, before = ranking.table.items, ranking.table.previous
    trusted: npt.NDArray[np.bool_] = (items.trust >= MIN_TRUST) & (items.traits & PASTED == 0)
    is_tool = items.role == "tool"
    if is_tool.any():
        trusted &= ~((items.role == "assistant") & (before >= 0) & is_tool[before]).astype(bool)
    return trusted


def merge_scopes(scopes: Sequence[list[Candidate]]) -> list[Candidate]:
    """Merge by relevance, keeping each scope's own order."""
    if len(scopes) == 1:
        return scopes[0]
    left = [deque(one) for one in scopes if one]
    merged: list[Candidate] = []
    while left:
        best = max(left, key=lambda candidates: candidates[0].relevance)  # the first of equals
        merged.append(best.popleft())
        left = left if best else [one for one in left if one]
    return merged


def count_untrusted_places(n: int) -> int:
    """Return how many of n hits may be untrusted while trusted ones are relevant. The best hit may always be."""
    return max(1, int(n * MAX_UNTRUSTED_SHARE))


def select_candidates(candidates: Sequence[Candidate], n: int, floor: float, usual_floor: float) -> Selection:
    """Select the first n above the floor, with limits for untrusted candidates and for each named source.

    A source gets at most half of the places while others are relevant. All untrusted candidates together get
    MAX_UNTRUSTED_SHARE while trusted ones are relevant, whatever their sources are called.
    A substitute must pass the usual floor, even if the caller has turned the floor off.
    """
    above = [one for one in candidates if one.relevance >= floor]
    best = above[:n]
    picked, deferred = _pick_within_limits(above, len(best), usual_floor)
    # The ranking's order stays: a substitute does not inherit the position of the one it replaced.
    selected = [one for one in above if one in picked] if deferred else best
    replaced = {one: deferred[one] for one in best if one not in picked} if deferred else {}
    omitted: dict[Reason, list[Candidate]] = {
        "floor": [one for one in candidates if one.relevance < floor],
        "n": [one for one in above[n:] if one not in picked] if deferred else above[n:],
        "source": [one for one, reason in replaced.items() if reason == "source"],
        "trust": [one for one, reason in replaced.items() if reason == "trust"],
        "budget": [],
    }
    return Selection(selected, omitted)


def _pick_within_limits(
    above: Sequence[Candidate], size: int, usual_floor: float
) -> tuple[set[Candidate], dict[Candidate, Reason]]:
    """Pick candidates in order, and defer those beyond a limit. If too few are left, deferred ones fill the places."""
    picked: set[Candidate] = set()
    deferred: dict[Candidate, Reason] = {}
    counts: Counter[str | None] = Counter()
    untrusted = count_untrusted_places(size)
    for place, one in enumerate(above):
        if len(picked) == size:
            break
        if place >= size and one.relevance < usual_floor:
            continue
        if not one.trusted and not untrusted:
            deferred[one] = "trust"
        elif one.source is not None and counts[one.source] >= (size + 1) // 2:
            deferred[one] = "source"
        else:
            picked.add(one)
            counts[one.source] += 1
            untrusted -= not one.trusted
    # Trusted ones come first here too: a limit for sources must not make room for untrusted texts.
    fillers = sorted(deferred, key=lambda one: not (one.trusted and one.relevance >= usual_floor))
    picked.update(fillers[: size - len(picked)])
    return picked, deferred


class HitOrigin(NamedTuple):
    """The arms that found a hit, the scope that shares it, and whether something newer was said of its matter."""

    found_by: tuple[str, ...] = ()
    scope: Scope | None = None
    earlier: bool = False


def build_hit(
    candidate: Candidate,
    ranking: Ranking,
    item: Item,
    passage: int,
    outdated: Sequence[OutdatedSpan],
    origin: HitOrigin = HitOrigin(),  # noqa: B008 - frozen
) -> Hit:
    start, end = _locate_passage(item.text, passage)
    parts = ranking.parts[candidate.row].tolist()
    named = zip(ranking.names, parts, strict=True)
    score_parts = {name: round(part, 4) for name, part in named if not -5e-5 <= part <= 5e-5}
    outdated_texts = tuple(
        OutdatedText(item.text[mark.start : mark.end], mark.until, mark.now, mark.by)
        for mark in outdated
        if mark.start < end and mark.end > start
    )
    text = item.text[start:end]
    return Hit(
        item, text, (start, end), candidate.score, candidate.relevance, origin.found_by, score_parts,
        outdated_texts, origin.scope, earlier=origin.earlier,
    )  # fmt: skip


def pack_hits(
    hits: Mapping[Candidate, Hit],
    selection: Selection,
    budget: TokenBudget,
    context: tuple[Section, ...] = (),
    facts: Sequence[ContextFact] = (),
) -> Recall:
    """Pack as many hits, in order, as fit into the budget, however small it is."""
    context = budget.fit_context(context)
    hits = _mark_in_context(hits, facts, context)
    packed, cut = (dict(hits), []) if budget.tokens is None else _fit_hits(hits, budget, context)
    shown = [packed[one] for one in hits if one in packed]
    # A tokenizer may count joined lines higher than the sum of their counts.
    while budget.tokens is not None and packed and budget.count(render_block(context, shown)) > budget.tokens:
        cut.append(packed.popitem()[0])
        shown = [packed[one] for one in hits if one in packed]
    text = render_block(context, shown)
    tokens = budget.count(text) if text else 0
    return Recall(tuple(shown), tokens, _summarize_omitted({**selection.omitted, "budget": cut}), context)


def _fit_hits(
    hits: Mapping[Candidate, Hit], budget: TokenBudget, context: tuple[Section, ...]
) -> tuple[dict[Candidate, Hit], list[Candidate]]:
    """Return the hits that fit into the budget, and those that do not.

    A hit that does not fit is shortened to its best sentences. If even those are too long, no far less relevant hit
    takes its place, nor one that no longer holds: a model would take it for the answer.
    """
    packed: dict[Candidate, Hit] = {}
    cut: list[Candidate] = []
    titles: set[str] = set()
    used = budget.count(render_block(context, ()))
    for candidate in _order_for_packing(hits, budget):
        hit = hits[candidate]
        if hit.in_context:  # costs nothing
            packed[candidate] = hit
            continue
        # A long text of a stranger must not keep out what the user said.
        best_cut = max((one.relevance for one in cut if one.trusted or not candidate.trusted), default=0.0)
        title = choose_heading(hit)
        heading = 0 if title in titles else budget.count(f"\n## {title}\n")
        blocked = candidate.relevance < MIN_SUBSTITUTE_SHARE * best_cut or (
            hit.stale and 0 < candidate.relevance <= best_cut
        )
        fitting = None if blocked else budget.fit_hit(hit, used + heading)
        if fitting is None:
            cut.append(candidate)
            continue
        packed[candidate] = fitting
        titles.add(title)
        used += heading + budget.count(f"{fitting}\n")
    return packed, cut


def _mark_in_context(
    hits: Mapping[Candidate, Hit], facts: Sequence[ContextFact], context: tuple[Section, ...]
) -> Mapping[Candidate, Hit]:
    """Mark the hits that the context tells: its facts, and the messages that these cite for the most part."""
    lines = {line for section in context for line in section.lines}
    items = [fact.item for fact in facts if fact.line in lines]
    ids, cited = {item.id for item in items}, Counter[str]()
    for cite in (cite for item in items for source in item.sources for cite in source.cites):
        cited[cite.item] += MAX_WHOLE_CHARACTERS if cite.start is None or cite.end is None else cite.end - cite.start
    if not items:
        return hits
    return {
        candidate: replace(hit, in_context=True)
        if hit.item.id in ids
        or (hit.item.kind == "message" and cited[hit.item.id] >= MIN_CITED_SHARE * len(hit.item.text))
        else hit
        for candidate, hit in hits.items()
    }


def _order_for_packing(hits: Mapping[Candidate, Hit], budget: TokenBudget) -> list[Candidate]:
    """Put untrusted hits last that do not fit into their share of the budget."""
    if budget.tokens is None or all(one.trusted for one in hits):
        return list(hits)
    room = budget.tokens * MAX_UNTRUSTED_SHARE
    first: list[Candidate] = []
    last: list[Candidate] = []
    for candidate, hit in hits.items():
        cost = 0 if candidate.trusted else budget.count(f"{hit}\n")
        (first if cost <= room else last).append(candidate)
        room -= cost if cost <= room else 0
    return first + last


def shorten_hit(hit: Hit, span: tuple[int, int]) -> Hit:
    """Return the hit with only a part of its text. A mark stays while any place that it may mean is in that part."""
    start, end = span
    item = hit.item
    outdated = tuple(
        old
        for old in hit.outdated
        if any(place.start() < end and place.end() > start for place in re.finditer(re.escape(old.text), item.text))
    )
    return replace(hit, text=item.text[start:end], span=span, outdated=outdated)


def _summarize_omitted(left: Mapping[Reason, list[Candidate]]) -> tuple[Omitted, ...]:
    found = []
    for reason, some in left.items():
        if some:
            best = sorted(some, key=attrgetter("relevance"), reverse=True)
            # Rounded down, so that a relevance below the floor never reads as equal to it.
            relevance = math.floor(best[0].relevance * 10_000) / 10_000
            found.append(Omitted(reason, len(some), tuple(one.id for one in best[:MAX_OMITTED_IDS]), relevance))
    return tuple(found)


def _locate_passage(text: str, number: int) -> tuple[int, int]:
    if len(text) <= MAX_WHOLE_CHARACTERS:
        return 0, len(text)
    spans = split_passages(text)
    return spans[min(number, len(spans) - 1)] if spans else (0, len(text))


def _add_replies(order: list[int], reply: list[int]) -> list[int]:
    """Put the reply to each turn behind it: a summary needs both."""
    pairs = ((row, reply[row]) for row in order)
    return list(dict.fromkeys(row for pair in pairs for row in pair if row >= 0))


def _spread_sessions(order: list[int], ranking: Ranking) -> list[int]:
    pool, rest = np.array(order[:SPREAD_POOL_SIZE], dtype=np.int64), order[SPREAD_POOL_SIZE:]
    session = ranking.table.items.session[pool]
    score = ranking.score[pool].copy()
    picked: list[int] = []
    for _ in range(len(pool)):
        best = int(np.argmax(score))
        picked.append(int(pool[best]))
        score[best] = -np.inf
        if session[best] >= 0:
            score[session == session[best]] -= SESSION_PENALTY
    return picked + rest


# A message is a duplicate of a fact that cites at least this share of it.
MIN_CITED_SHARE = 0.6
MAX_OTHER_WORDS = 0.1  # of a hit that a summary holds all the same
# Only words that never change the meaning: "is" and "was", "on" and "off", "my" and "your" do.
_FILLER_WORDS = frozenset(("a", "an", "the", "that", "please", "just", "really", "very"))
# Only marks without meaning at the edge of a word. All others may have one: C++ and C, -5 and 5, a question, 5' and 5".
_OPENING_MARKS = re.compile(r"""^[("'“‘«\[]+""")
_CLOSING_MARKS = re.compile(r"""(?:[.,;:!…”’»)\]]|(?<!\d)["'])+$""")


def find_duplicates(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Return each duplicate with the hit that it repeats.

    A hit is a duplicate if an earlier one has the same words in the same order, whatever the punctuation.
    A trusted one counts as earlier than an untrusted one.
    A message is one if another hit cites most of it. The same value in two slots is two facts. A summary is one if
    it only holds the words of another hit, and a fact without a slot if it is a part of a longer hit.
    """
    found = _find_contained(hits)
    first: dict[tuple[object, ...], Candidate] = {}
    cited = _find_cited_messages({one: hit for one, hit in hits.items() if one not in found})
    for candidate, hit in sorted(hits.items(), key=lambda pair: not pair[0].trusted):
        words = (hit.item.slot, hit.scope, *normalize_words(hit.text))
        other = cited.get(hit.item.id) or first.setdefault(words, candidate)
        if other != candidate and other not in found:
            found[candidate] = other
    return found


def _find_contained(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Return the summaries that hold another hit, and the facts without a slot that cite a part of another hit."""
    found: dict[Candidate, Candidate] = {}
    # Only a summary is compared by its words.
    has_summary = any(hit.item.kind == "summary" for hit in hits.values())
    words = {candidate: set(tokenize(hit.text)) for candidate, hit in hits.items()} if has_summary else {}
    for candidate, hit in hits.items():
        # An untrusted hit never takes the place of a trusted one, nor does a summary that may itself be left out.
        others = (one for one in hits if one.trusted or not candidate.trusted)
        other = None
        if hit.item.kind == "summary":
            held = words[candidate]
            others = (one for one in others if hits[one].item.kind != "summary")
            other = next((one for one in others if len(words[one] - held) <= MAX_OTHER_WORDS * len(words[one])), None)
        elif hit.item.kind == "fact" and hit.item.slot is None:
            cited = {cite.item for source in hit.item.sources for cite in source.cites}
            other = next((one for one in others if one.id in cited and _holds(hits[one], hit)), None)
        if other is not None:
            found[candidate] = other
    return found


def _holds(whole: Hit, part: Hit) -> bool:
    """Tell if a hit shows the words of another, and they are not most of it."""
    return part.text in whole.text and len(part.text) < MIN_CITED_SHARE * len(whole.item.text)


def normalize_words(text: str) -> list[str]:
    """Return the words without filler and edge punctuation. Endings and capitals stay: universe is not university."""
    words = normalize_unicode("NFC", text).split()
    words = [word if word.isalnum() else _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", word)) for word in words]
    words[:1] = [word[:1].lower() + word[1:] for word in words[:1]]
    return [word for word in words if word and word not in _FILLER_WORDS]


def _find_cited_messages(hits: Mapping[Candidate, Hit]) -> dict[str, Candidate]:
    """Return the messages among the hits that another hit cites for the most part."""
    messages = {hit.item.id: len(hit.item.text) for hit in hits.values() if hit.item.kind == "message"}
    return {
        cite.item: candidate
        for candidate, hit in hits.items()
        for source in hit.item.sources
        for cite in source.cites
        if hit.item.kind != "summary"
        and cite.item in messages
        and (cite.start is None or cite.end is None or cite.end - cite.start >= MIN_CITED_SHARE * messages[cite.item])
    }
