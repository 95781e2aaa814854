"""Tell what followed from each message of a committed plan: kept, replaced, forgotten or proposed items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.messages import Message, MessageResult
from engrain.core.model.plans import Add, Applied, Correct, Outcome, Step, refer_to_step


@dataclass(frozen=True, slots=True)
class RecordResult:
    messages: Sequence[Message]  # as they were given
    results: tuple[MessageResult, ...]  # of each message
    places: tuple[int, ...]  # the messages' numbers in the session
    forgotten: tuple[str, ...] = ()  # items that the user asked to forget
    marked: tuple[str, ...] = ()  # messages of which a span was cut out
    repeated: bool = False  # the request id was known: this is its first answer
    refused: str | None = None  # the reason why nothing could be forgotten although the user asked for it

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in self.results)

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that the gate kept, and important episodes."""
        return tuple(dict.fromkeys(id for one in self.results for id in one.facts))


def build_result(
    applied: Applied, messages: Sequence[Message], owners: Sequence[int], proposed: Sequence[tuple[str, ...]]
) -> RecordResult:
    """Build the answer of each message from the outcomes of its steps. The messages' own steps come first.

    `owners` are the messages of the steps after them.
    """
    rows, rest = applied.outcomes[: len(messages)], applied.outcomes[len(messages) :]
    removed = [id for one in rest if one.status == "forgotten" for id in (one.id, *one.others) if id]
    added = {one.id for one in rest if one.status not in ("forgotten", "missing", "changed")}
    own: list[list[Outcome]] = [[] for _ in rows]
    for owner, outcome in zip(owners, rest, strict=False):
        own[owner].append(outcome)
    results = (
        _describe_result(row, some, maybe, set(removed), added)
        for row, some, maybe in zip(rows, own, proposed, strict=True)
    )
    return RecordResult(
        messages,
        tuple(results),
        places=tuple(one.place or 0 for one in rows),
        forgotten=tuple(dict.fromkeys(id for id in removed if id not in added)),
        marked=tuple(dict.fromkeys(id for one in rest for id in one.marked)),
        repeated=applied.repeated,
    )


def _describe_result(
    row: Outcome, own: Sequence[Outcome], proposed: tuple[str, ...], removed: set[str], added: set[str | None]
) -> MessageResult:
    kept = [one for one in own if one.status not in ("forgotten", "missing", "changed")]
    # Where no fact was made of the words, the messages that lost them are what was forgotten.
    gone = [id for one in own if one.status == "forgotten" for id in (one.id, *one.others) if id and id not in added]
    gone = gone or [id for one in own if one.status == "forgotten" for id in one.marked if id != row.id]
    return MessageResult(
        row.id or "",
        facts=tuple(dict.fromkeys(one.id for one in kept if one.id and one.id not in removed)),
        replaced=tuple(dict.fromkeys(id for one in kept for id in one.others)),
        forgotten=tuple(dict.fromkeys(gone)),
        proposed=proposed,
    )


def find_owners(steps: Sequence[Step], messages: int) -> list[int]:
    """Return the message of each step after the messages' own: the one that it, or the step before it, cites."""
    owners = {refer_to_step(k): k for k in range(messages)}
    found: list[int] = []
    for k, step in enumerate(steps[messages:], messages):
        named = [cite.item for cite in step.draft.source.cites] if isinstance(step, (Add, Correct)) else [step.id]
        found.append(next((owners[one] for one in named if one in owners), found[-1] if found else 0))
        owners[refer_to_step(k)] = found[-1]
    return found


def find_cited(
    applied: Applied, messages: int, load: Callable[[Scope, Sequence[str]], Sequence[Item]], scope: Scope
) -> list[int]:
    """Return the message of each outcome after the messages' own, by what the stored item cites."""
    places = {one.id: k for k, one in enumerate(applied.outcomes[:messages])}
    rest = applied.outcomes[messages:]
    ids = [one.id for one in rest if one.id]
    stored = {item.id: item for item in load(scope, ids)} if ids else {}
    found: list[int] = []
    for one in rest:
        last = found[-1] if found else 0
        sources = stored[one.id].sources if one.id in stored else ()
        cited = (places[cite.item] for source in sources for cite in source.cites if cite.item in places)
        found.append(min((place for place in cited if place >= last), default=last))
    return found
