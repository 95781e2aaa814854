"""The pass that completes erasures which were cut off, or had to wait."""

from __future__ import annotations

from engrain.core.maintained import Doing
from engrain.lifecycle.care.rounds import Done, Pass, Round, Tell
from engrain.lifecycle.erasure.erasing import resume


def planned(care: Round) -> list[Pass]:
    """Of the whole store, whoever began them; no pass where none is under way."""
    running = care.kit.erasing.running() if care.kit.erasing else []
    each = tuple(Doing("complete", one.id, f"an erasure by {one.by}, begun {one.at:%Y-%m-%d}") for one in running)

    def act(tell: Tell) -> Done:
        answers = resume(care.kit, lambda _: None)
        complete = {one.id for one in answers if one.receipt}
        waiting = [f"{one.id}: {one.why}" for one in answers if one.pending]
        tell(len(complete))
        told = f"{len(waiting):,} still to be completed: {' '.join(waiting)}" if waiting else ""
        return Done(tuple(one for one in each if one.id in complete), told)

    return [Pass("erased", each, ("completed", "complete"), "erasure", "under way", act)] if each else []
