"""Let the facts of one call end each other: a transcript may tell a thing and its change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.plans import Add, Step, refer_to_step
from engrain.ingest.change_finder import ReadFact, find_ended_fact
from engrain.ingest.read_messages import AnalyzedMessage

MAX_FACTS_BACK = 50  # with which a new one is compared


def end_older_steps(steps: Sequence[Step], turns: Sequence[AnalyzedMessage]) -> list[Step]:
    """Let the facts of a message end those of the messages before it in the same call."""
    if sum(bool(turn.found) for turn in turns) < 2:
        return list(steps)
    places = {refer_to_step(k): k for k in range(len(turns))}
    said: list[tuple[int, int, ReadFact]] = []  # the step, the message, and the words
    ended = list(steps)
    for number, step in enumerate(steps):
        if not isinstance(step, Add) or step.draft.kind != "fact" or step.draft.expires_at is not None:
            continue
        cites = [cite for cite in step.draft.source.cites if cite.item in places]
        turn = turns[places[cites[0].item]] if cites else None
        span = cites[0].find_span(len(turn.message.text)) if turn else (0, 0)
        read = turn.vectors.read_span(turn.message.text, span) if turn else None
        if turn is None or read is None:
            continue
        place, new = places[cites[0].item], ReadFact(step.draft, read)
        older = [(at, one) for at, where, one in said[-MAX_FACTS_BACK:] if where < place]
        found = find_ended_fact(new, [one for _, one in older])
        if found is not None:
            name = refer_to_step(len(turns) + older[found][0])
            ended[number] = replace(step, draft=replace(step.draft, ends=(*step.draft.ends, name)))
        said.append((number, place, new))
    return ended
