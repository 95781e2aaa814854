"""The answers of the tools: a text for the model, and the same as structured values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NotRequired, cast

from mcp.types import CallToolResult, TextContent
from typing_extensions import TypedDict

from engrain.core.identity import ID_LENGTH
from engrain.core.model.items import Item
from engrain.core.model.messages import MessageResult
from engrain.core.model.recall import HEADINGS, Omitted, Recall, Section, choose_heading
from engrain.core.model.results import Explanation, explain_trust
from engrain.core.model.sessions import SessionStart
from engrain.core.text.invisible import escape_invisible
from engrain.core.tokens import estimate_tokens

NOTHING_FOUND = "Nothing relevant is remembered."
_ID_TOKENS = estimate_tokens(f" [{'0' * ID_LENGTH}]")


class ItemAnswer(TypedDict):
    """An item. `trust` says how far its source is trusted, from 0 to 1. `until` is set if it no longer holds."""

    id: str
    kind: str
    text: str
    date: str
    trust: float
    importance: float
    slot: NotRequired[str]
    source: NotRequired[str]
    session: NotRequired[str]
    until: NotRequired[str]


class RecalledItem(ItemAnswer):
    relevance: float


class RecallAnswer(TypedDict):
    """The hits, best first; recent events around them; what was left out, and why; the tokens of the text."""

    items: list[RecalledItem]
    context: list[str]
    omitted: list[str]
    tokens: int


class IdAnswer(TypedDict):
    id: str


class ForgetAnswer(TypedDict):
    """The items that go, or went, with all that rests on them. `missing` are ids that there is no item of."""

    dry_run: bool
    ids: list[str]
    items: NotRequired[list[ItemAnswer]]
    missing: list[str]


class ListAnswer(TypedDict):
    """A page of items, newest first. `next` is the `after` of the next page."""

    items: list[ItemAnswer]
    next: NotRequired[str]


class SourceAnswer(TypedDict):
    kind: str
    name: NotRequired[str]


class ExplainAnswer(TypedDict):
    """An item, its sources, the reason of its trust, the items that it rests on and that rest on it, its versions."""

    item: ItemAnswer
    sources: list[SourceAnswer]
    trust_reason: str
    cites: list[ItemAnswer]
    cited_by: list[ItemAnswer]
    versions: list[ItemAnswer]


class MessageAnswer(TypedDict):
    """A kept message, and the items that followed. `proposed` may be meant to be forgotten: ask the user."""

    id: str
    facts: list[str]
    replaced: list[str]
    forgotten: list[str]
    proposed: list[str]


class MessagesAnswer(TypedDict):
    """The session, and each message in order."""

    session: str
    messages: list[MessageAnswer]


class SessionAnswer(TypedDict):
    """The id of the session, and the block for the prompt."""

    session: str
    context: str


def make_result(answer: Mapping[str, Any], text: str | None = None) -> CallToolResult:
    """Return both forms of an answer, for a model: without invisible characters. No text: the JSON of the values."""
    values = escape_values(answer)
    shown = json.dumps(values, ensure_ascii=False) if text is None else escape_invisible(text)
    return CallToolResult(content=[TextContent(type="text", text=shown)], structured_content=values)


def escape_values(value: Any) -> Any:
    """Escape the invisible characters in all texts of a JSON value."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, Mapping):
        return {escape_invisible(str(key)): escape_values(element) for key, element in value.items()}
    return [escape_values(element) for element in value] if isinstance(value, (list, tuple)) else value


def describe_item(item: Item) -> ItemAnswer:
    answer = ItemAnswer(
        id=item.id,
        kind=item.kind,
        text=item.text,
        date=f"{item.occurred_at or item.recorded_at:%Y-%m-%d}",
        trust=item.trust,
        importance=item.importance,
    )
    if item.slot:
        answer["slot"] = item.slot
    if item.source:
        answer["source"] = item.source
    if item.session:
        answer["session"] = item.session
    if until := item.retracted_at or item.valid_to:
        answer["until"] = f"{until:%Y-%m-%d}"
    return answer


def describe_items(items: Iterable[Item]) -> list[ItemAnswer]:
    return [describe_item(item) for item in items]


def describe_recall(found: Recall) -> CallToolResult:
    """Return the hits. The text is recall's block of quoted items, each with its id."""
    answer = RecallAnswer(
        items=[
            RecalledItem(**{**describe_item(hit.item), "text": hit.text}, relevance=round(hit.relevance, 3))  # type: ignore[typeddict-item]
            for hit in found
        ],
        context=[str(section) for section in found.context],
        omitted=[str(omission) for omission in (*found.omitted, *found.degraded)],
        tokens=found.tokens,
    )
    return make_result(answer, _render_recall(found))


def make_room_for_ids(found: Recall, budget: int) -> Recall:
    """Leave out the last hits until the text fits the budget with the ids that it adds."""
    hits, tokens = found.hits, found.tokens + len(found.hits) * _ID_TOKENS
    while hits and tokens > budget:
        tokens -= estimate_tokens(str(hits[-1])) + _ID_TOKENS
        hits = hits[:-1]
    dropped = found.hits[len(hits) :]
    if not dropped:
        return replace(found, tokens=tokens)
    omitted = Omitted("budget", len(dropped), tuple(hit.item.id for hit in dropped), dropped[0].relevance)
    return replace(found, hits=hits, tokens=tokens, omitted=(*found.omitted, omitted))


def _render_recall(found: Recall) -> str:
    lines: dict[str, list[str]] = {title: [] for title in HEADINGS}
    for hit in found:
        lines[choose_heading(hit)].append(f"{hit} [{hit.item.id}]")
    sections = [Section(title, tuple(quoted)) for title, quoted in lines.items() if quoted]
    left_out = "".join(f"\nLeft out: {omission}." for omission in (*found.omitted, *found.degraded))
    return "\n\n".join(map(str, (*found.context, *sections))) or NOTHING_FOUND + left_out


def describe_forgetting(ids: Iterable[str], missing: list[str], going: Iterable[Item] | None) -> CallToolResult:
    """Return the forgotten ids, or, for a dry run, the items that would go."""
    gone = list(ids)
    answer = ForgetAnswer(dry_run=going is not None, ids=gone, missing=missing)
    if going is not None:
        answer["items"] = describe_items(going)
    return make_result(answer)


def describe_explanation(why: Explanation) -> CallToolResult:
    answer = ExplainAnswer(
        item=describe_item(why.item),
        sources=[
            SourceAnswer(kind=one.kind, name=one.name) if one.name else SourceAnswer(kind=one.kind)
            for one in why.item.sources
        ],
        trust_reason=explain_trust(why),
        cites=describe_items(why.cites),
        cited_by=describe_items(why.cited_by),
        versions=describe_items(why.versions),
    )
    return make_result(answer, str(why))


def describe_messages(session: str, results: Iterable[MessageResult]) -> CallToolResult:
    return make_result(
        MessagesAnswer(session=session, messages=[cast(MessageAnswer, result.to_dict()) for result in results])
    )


def describe_start(start: SessionStart) -> CallToolResult:
    context = str(start)
    text = f"Session {start.session} has begun.\n\n{context or 'Nothing is remembered yet.'}"
    return make_result(SessionAnswer(session=start.session, context=context), text)
