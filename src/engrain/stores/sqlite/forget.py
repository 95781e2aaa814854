"""Remove an item with all that rests on it, and cut what it cites out of what stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from engrain.core.model.plans import Forget, Outcome
from engrain.core.rules.removal import cites_any_span, cut_spans, shift_offset
from engrain.core.rules.traits import detect_traits
from engrain.core.text.passages import Span, index_words
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work

_SQL = load("forget.sql")


def forget(work: Work, step: Forget) -> Outcome:
    asked, gone, spans = found(work, step)
    if not asked:
        return Outcome(step.id, "missing")
    if step.unchanged_since is not None and _changed(work, gone, step.unchanged_since):
        return Outcome(step.id, "stale")
    remove(work, gone, _own_words(work, gone).union(asked))
    marked = [_cut(work, number, cuts) for number, cuts in spans.items() if number not in gone]
    return Outcome(step.id, "forgotten", tuple(id_ for id_ in gone.values() if id_ != step.id), tuple(marked))


def found(work: Work, step: Forget) -> tuple[list[int], dict[int, str], dict[int, list[Span]]]:
    """The item with its corrected versions, all that goes, and what is cut out of what stays."""
    asked = [n for (n,) in work.db.rows(_SQL["asked"], {"scope": work.scope_n, "id": step.id})]
    gone = _closure(work, asked)
    spans = {} if step.keep_source else _cited_spans(work, gone, asked)
    resting = _resting(work, spans) - gone.keys()
    return asked, _closure(work, [*gone, *resting]) if resting else gone, spans


def _closure(work: Work, numbers: Iterable[int]) -> dict[int, str]:
    """Ids by number."""
    return dict(work.db.rows(_SQL["closure"], {"scope": work.scope_n, "start": as_json(numbers)}))


def _cited_spans(work: Work, gone: Iterable[int], asked: Sequence[int]) -> dict[int, list[Span]]:
    """By item that stays. A cite of a whole item counts only if it is the forgotten item's own: else forgetting one
    message would take what rests on several with it, and that would take the others."""
    spans: dict[int, list[Span]] = {}
    values = {"scope": work.scope_n, "gone": as_json(gone)}
    for item, cited, start, end, length in work.db.rows(_SQL["cited_spans"], values):
        if item in asked or start is not None or end is not None:
            spans.setdefault(cited, []).append((start or 0, length if end is None else end))
    return spans


def _resting(work: Work, spans: Mapping[int, Sequence[Span]]) -> set[int]:
    """What cites words that are cut."""
    rows = work.db.rows(_SQL["cites_of"], (work.scope_n, as_json(spans))) if spans else []
    return {item for item, cited, start, end in rows if cites_any_span(start, end, spans[cited])}


def _changed(work: Work, numbers: Iterable[int], since: int) -> bool:
    return bool(work.db.rows(_SQL["changed"], {"numbers": as_json(numbers), "since": since}))


def _own_words(work: Work, numbers: Iterable[int]) -> set[int]:
    """All but summaries: what is left may be summed up in the same words."""
    return {n for (n,) in work.db.rows(_SQL["own_words"], (as_json(numbers),))}


def remove(work: Work, numbers: Collection[int], entombed: Collection[int]) -> None:
    """These items with their index rows; a tombstone of those that are to be entombed."""
    # Not above: it needs numpy, which `import engrain` must not.
    from engrain.stores.sqlite.index.rows import drop_index

    for number in numbers:
        ((id_, text, session, place),) = work.db.rows(_SQL["forgotten"], (number,))
        if number in entombed:
            _entomb(work, text)
        _uncover(work, session, place)
        drop_index(work.db, number)
        work.db.run(_SQL["add_gone"], (work.mark(), work.scope_n, number, id_))
    # After all of them are read: removing a cited item takes the cites of others along.
    for number in numbers:
        work.db.run(_SQL["remove"], (number,))


def _cut(work: Work, number: int, spans: list[Span]) -> str:
    """The item stays, with a mark in place of each span; its vectors are made anew by whoever embeds."""
    from engrain.stores.sqlite.index.rows import drop_index, write_index

    ((id_, text, session, place, speaker, role, slot),) = work.db.rows(_SQL["cut_from"], (number,))
    for piece in (text, *(text[start:end] for start, end in spans)):
        _entomb(work, piece)
    _uncover(work, session, place)
    after = cut_spans(text, spans)
    words = index_words(after, speaker, slot)
    # A hash of its own: two items cut to the same words are still two.
    values = {"text": after, "hash": work.digest("cut", id_, after), "traits": detect_traits(after, role)}
    work.db.run(_SQL["cut"], {**values, "passages": words.passages, "changed": work.mark(), "n": number})
    work.db.run(_SQL["cut_entities"], (work.scope_n, number))
    work.db.run(_SQL["cut_episodes"], (work.scope_n, number))
    drop_index(work.db, number)
    write_index(work.db, number, words, None)
    for row, citing, start, end in work.db.rows(_SQL["cites_into"], (work.scope_n, number)):
        where = (shift_offset(start, spans), shift_offset(end, spans), row)
        work.db.run(_SQL["move_cite"], where)
        work.db.run(_SQL["mark"], (work.mark(), citing))
    return str(id_)


def _entomb(work: Work, text: str) -> None:
    work.db.run(_SQL["add_tombstone"], (work.scope_n, work.digest("text", text), work.micros))


def _uncover(work: Work, session: str | None, place: int | None) -> None:
    """A summary that covers a forgotten message loses its text, and one that is being made will not be stored."""
    if session is not None and place is not None:
        work.db.run(_SQL["uncover"], (work.scope_n, session, place))
