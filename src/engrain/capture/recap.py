"""Sum up a whole session in stages, and say which items its summary rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from engrain.capture.summaries import opens, part_of
from engrain.core.digest import SUMMARY, Line, Part, lines, text_of, told
from engrain.core.items import Item
from engrain.core.messages import message_of
from engrain.core.scope import Scope
from engrain.core.secrecy import gives_away_a_secret
from engrain.ports import Kit

LIMIT = 400  # tokens
READ = 1_000  # messages of one stage

Origins = dict[str, tuple[str, ...]]  # the items that a line rests on


@dataclass(frozen=True, slots=True)
class Recap:
    """What is told of a session up to message number `upto`, what was new in it from number `start` on, the items that
    it rests on, the day of the first message and the time of the last."""

    text: str
    sources: tuple[str, ...]
    start: int
    upto: int
    since: str
    at: datetime


def recap(kit: Kit, scope: Scope, session: str, held: Item | None, length: int) -> Recap | None:
    """The summary that is held with what was said since, a thousand messages at a time: the beginning of a long session
    is told of too, and to end a session again costs no more than what is new in it. None if nobody said anything."""
    start = covered(held)
    text, since, at = held.text if held else "", _since(held), held.valid_from if held else None
    origins = _origins(kit, scope, held) if held else {}
    place = start
    while rows := [row for row in kit.log.read(scope, session, place, READ) if (row.place or 0) < length]:
        since = since or _day(rows[0])
        parts = [Part(text, kind=SUMMARY), *_parts(rows, since)]
        found = [one for one in told(parts, LIMIT, kit.count_tokens) if not gives_away_a_secret(one.text)]
        origins = {one.text: _resting(one, origins, rows, held) for one in found}
        text, place = text_of(found), (rows[-1].place or 0) + 1
        at = max(_time(rows[-1]), at or _time(rows[-1]))
    if at is None:
        return None
    sources = dict.fromkeys(source for some in origins.values() for source in some)
    return Recap(text, tuple(sources), start, length, since, min(at, max(kit.clock(), held.valid_from if held else at)))


def covered(held: Item | None) -> int:
    """The number of the first message that a session's summary does not tell of."""
    upto = held.metadata.get("upto") if held else 0
    return upto if isinstance(upto, int) else 0


def _origins(kit: Kit, scope: Scope, held: Item) -> Origins:
    """Where the lines come from that are word for word in what the summary cites."""
    cited = [cite.item for source in held.sources for cite in source.cites]
    found: Origins = {}
    for row in kit.items.get_many(scope, cited):
        for part in _parts([row], _since(held)) if row.kind == "message" else ():
            found |= {one.text: (row.id,) for one in lines(part, len)}
    return found


def _resting(one: Line, known: Origins, rows: Sequence[Item], held: Item | None) -> tuple[str, ...]:
    """The message that a line was taken from. Of words that no line before had, such as a model's, or half of a long
    line: all that they may be of."""
    if one.part > 0:
        return (rows[one.part - 1].id,)
    if one.text in known:
        return known[one.text]
    before = [source for some in known.values() for source in some]
    new = [] if one.part == 0 else [row.id for row in rows]
    return tuple(dict.fromkeys([*([held.id] if held else []), *before, *new]))


def _parts(rows: Sequence[Item], since: str) -> list[Part]:
    messages = [(message_of(row), _day(row)) for row in rows]
    return [Part("") if opens(message) else part_of(message, "" if day == since else day) for message, day in messages]


def _since(held: Item | None) -> str:
    since = held.metadata.get("since", "") if held else ""
    return since if isinstance(since, str) else ""


def _time(row: Item) -> datetime:
    return row.occurred_at or row.recorded_at


def _day(row: Item) -> str:
    return f"{_time(row):%Y-%m-%d}"
