"""Remove an item with all that rests on it, and cut what it cites out of what stays."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.cutting import Span, cut, moved
from engrain.core.passages import index_words
from engrain.core.plans import Forget, Outcome
from engrain.core.traits import traits
from engrain.stores.postgres.index_rows import word_count, write_words
from engrain.stores.postgres.link import Row
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL = load("forget.sql")


def forget(work: Work, step: Forget) -> Outcome:
    closure = work.db.rows(_SQL["closure"], {"scope": work.owner, "id": step.id})
    if not closure:
        return Outcome(step.id, "missing")
    numbers = [row[0] for row in closure]
    spans = {} if step.keep_source else _cited_spans(work, numbers, numbers[0])
    _remove(work, numbers, closure)
    marked = [_cut(work, number, cuts) for number, cuts in spans.items()]
    work.db.run(_SQL["sweep_later"])
    return Outcome(step.id, "forgotten", tuple(row[1] for row in closure[1:]), tuple(marked))


def _cited_spans(work: Work, gone: list[int], asked: int) -> dict[int, list[Span]]:
    """By item that stays. A cite of a whole item counts only if it is the forgotten item's own, and what a summary
    cites does not count: else forgetting one message would take every other message of the session along."""
    spans: dict[int, list[Span]] = {}
    for item, cited, start, end, length in work.db.rows(_SQL["cited_spans"], {"gone": gone}):
        if item == asked or start is not None or end is not None:
            spans.setdefault(cited, []).append((start or 0, length if end is None else end))
    return spans


def _remove(work: Work, numbers: list[int], closure: Sequence[Row]) -> None:
    for _, id_, text, session, place in closure:
        _entomb(work, text)
        _uncover(work, session, place)
        work.change(_SQL["add_gone"], (work.owner, id_))
    ids = [row[1] for row in closure]
    for statement in ("remove_episodes", "remove_trials"):
        work.db.run(_SQL[statement], (work.owner, ids))
    for statement in ("remove_words", "remove_vectors", "remove"):
        work.db.run(_SQL[statement], (numbers,))


def _cut(work: Work, number: int, spans: list[Span]) -> str:
    """The item stays, with a mark in place of each span; its vectors are made anew by whoever embeds."""
    ((id_, text, session, place, speaker, role, slot),) = work.db.rows(_SQL["cut_from"], (number,))
    for piece in (text, *(text[start:end] for start, end in spans)):
        _entomb(work, piece)
    _uncover(work, session, place)
    after = cut(text, spans)
    words = index_words(after, speaker, slot)
    # A hash of its own: two items cut to the same words are still two.
    values = {"text": after, "hash": work.digest("cut", id_, after), "traits": traits(after, role)}
    values |= {"passages": words.passages, "words": word_count(words), "n": number}
    work.change(_SQL["cut"], values)
    work.db.run(_SQL["cut_entities"], (number,))
    work.db.run(_SQL["remove_episodes"], (work.owner, [id_]))
    for statement in ("remove_words", "remove_vectors"):
        work.db.run(_SQL[statement], ([number],))
    write_words(work.db, work.owner, [(number, words)])
    for row, citing, start, end in work.db.rows(_SQL["cites_into"], (number,)):
        where = (moved(start, spans, left=True), moved(end, spans, left=False), row)
        work.db.run(_SQL["move_cite"], where)
        work.change(_SQL["mark"], (citing,))
    return str(id_)


def _entomb(work: Work, text: str) -> None:
    work.db.run(_SQL["add_tombstone"], (work.owner, work.digest("text", text), work.micros))


def _uncover(work: Work, session: str | None, place: int | None) -> None:
    """A summary that covers a forgotten message goes; the next one begins at version 1 again."""
    if session is not None and place is not None:
        work.db.run(_SQL["uncover"], (work.owner, session, place))
