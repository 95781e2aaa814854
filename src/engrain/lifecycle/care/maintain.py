"""One round of care over a memory, or over all of a store: every pass says what it does, a dry run beforehand."""

from __future__ import annotations

from datetime import datetime

from engrain.core.errors import EngrainError, StoreClosed
from engrain.core.leaps import ENOUGH, Seen, leapt
from engrain.core.maintained import Maintained
from engrain.core.scope import Scope
from engrain.lifecycle.care import consolidate, lapsing, moments
from engrain.lifecycle.care.course import Course
from engrain.lifecycle.care.moments import memories
from engrain.lifecycle.care.rounds import UNWATCHED, Pass, Round, Watch
from engrain.lifecycle.recording import record
from engrain.ports import Kit

__all__ = ["Maintained", "Watch", "maintain", "memories", "passes"]


def maintain(
    kit: Kit,
    *scopes: Scope,
    dry_run: bool = False,
    reembed: bool = False,
    trust_clock: bool = False,
    watch: Watch = UNWATCHED,
) -> Maintained:
    """Every pass is planned first, and then carried out: a dry run is the plan. With `trust_clock` the clock is right,
    however far it has gone on since it was last looked at."""
    now = kit.clock()
    known = moments.seen(kit, now, *scopes)
    sudden = leapt(known, now) and not trust_clock
    trouble = [_sudden(known, now)] if sudden else []
    course = Course([Round(kit, scope, now, reembed, sudden) for scope in scopes], dry_run, watch)
    course.run()
    if not dry_run:
        for scope, counts in course.gone().items():
            record(kit, "maintain", {"counts": dict(counts)}, scope)
        _sweep(kit, trouble)
        moments.note(kit, Seen() if trust_clock else known, now)
    return course.answer(trouble)


def _sudden(known: Seen, now: datetime) -> str:
    return (
        f"the clock says {now:%Y-%m-%d}, and this memory was last cared for or written to on {known.last:%Y-%m-%d}. "
        f"Nothing goes for its age until the clock has said so for {ENOUGH.days} day, or somebody says that it is "
        "right: engrain maintain --trust-clock."
    )


def _sweep(kit: Kit, trouble: list[str]) -> None:
    """Once more for what was forgotten while a reader held it, and was left pending."""
    try:
        kit.items.purge()
    except StoreClosed:
        raise
    except EngrainError as exc:
        trouble.append(f"bytes of what was forgotten: {exc}")


def passes(care: Round) -> list[Pass]:
    """Those that are of one memory, in order: each is planned as if those before it were done."""
    return [*lapsing.passes(care), consolidate.planned(care)]
