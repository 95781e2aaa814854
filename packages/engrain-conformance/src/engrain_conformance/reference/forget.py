"""Remove an item with all that rests on it, and cut what it cites out of what stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from engrain.core.model.items import Citation, Item
from engrain.core.model.plans import Forget, Outcome
from engrain.core.model.queries import Summary
from engrain.core.rules.removal import cites_any_span, cut_spans
from engrain.core.rules.traits import detect_traits
from engrain.core.text.passages import Span, index_words
from engrain_conformance.reference import episodes
from engrain_conformance.reference.cutting import moved, span
from engrain_conformance.reference.state import Stored
from engrain_conformance.reference.work import Work


def forget(work: Work, step: Forget) -> Outcome:
    if not work.state.known(work.scope, step.id):
        return Outcome(step.id, "missing")
    asked, gone, spans = _found(work, step)
    if step.unchanged_since is not None and any(work.state.changes[id].seq > step.unchanged_since for id in gone):
        return Outcome(step.id, "stale")
    for id in gone:
        # What is left may be summed up in the same words.
        remove(work, id, work.state.items[id].item.kind != "summary" or id in asked)
    marked = [id for id in spans if id not in gone]
    for id in marked:
        _cut(work, id, spans[id])
    return Outcome(step.id, "forgotten", tuple(gone[1:]), tuple(marked))


def reached(work: Work, step: Forget) -> list[str]:
    """The ids of all that forgetting would remove."""
    return _found(work, step)[1] if work.state.known(work.scope, step.id) else []


def _found(work: Work, step: Forget) -> tuple[list[str], list[str], dict[str, list[Span]]]:
    asked = _with_corrected(work, step.id)
    gone = _closure(work, asked)
    spans = {} if step.keep_source else _cited_spans(work, gone, asked)
    return asked, _closure(work, [*gone, *_resting(work, spans)]), spans


def _with_corrected(work: Work, id: str) -> list[str]:
    found = [id]
    for one in found:
        found += [each.item.id for each in work.state.within(work.scope) if _corrected_by(each.item, one)]
    return found


def _closure(work: Work, ids: Sequence[str]) -> list[str]:
    """These, what they corrected, what cites any of it, and so on."""
    gone = list(dict.fromkeys(ids))
    for one in gone:
        for item in (each.item for each in work.state.within(work.scope)):
            near = _corrected_by(item, one) or any(cite.item == one for cite in _cites(item))
            if near and item.id not in gone:
                gone.append(item.id)
    return gone


def _corrected_by(item: Item, id: str) -> bool:
    return item.replaced_by == id and item.retracted_at is not None


def _cited_spans(work: Work, gone: Sequence[str], asked: Sequence[str]) -> dict[str, list[Span]]:
    """By item that stays. A cite of a whole item counts only if it is the forgotten item's own, and what a summary
    cites does not count: else forgetting one message would take every other message of the session along."""
    items = work.state.items
    spans: dict[str, list[Span]] = {}
    for id in gone:
        if items[id].item.kind == "summary":
            continue
        for cite in _cites(items[id].item):
            whole = cite.start is None and cite.end is None
            if cite.item not in gone and not cite.wordless and (id in asked or not whole):
                spans.setdefault(cite.item, []).append(span(cite, items[cite.item].item.text))
    return spans


def _resting(work: Work, spans: Mapping[str, Sequence[Span]]) -> list[str]:
    """What cites words that are cut."""
    return [
        each.item.id
        for each in work.state.within(work.scope)
        if any(cites_any_span(cite.start, cite.end, spans.get(cite.item, ())) for cite in _cites(each.item))
    ]


def remove(work: Work, id: str, entombed: bool) -> None:
    stored = work.state.items.pop(id)
    if entombed:
        _entomb(work, stored.item.text)
    _uncover(work, stored.item)
    episodes.drop_over(work.state, work.scope, id)
    for key in [key for key in work.state.trials if key[:2] == (work.scope, id)]:
        del work.state.trials[key]
    work.mark(id, gone=True)


def _cut(work: Work, id: str, spans: Sequence[Span]) -> None:
    before = work.state.items[id].item
    for text in (before.text, *(before.text[start:end] for start, end in spans)):
        _entomb(work, text)
    # A relation would say in other fields what was cut out of the text.
    after = replace(before, text=cut_spans(before.text, spans), relation=None)
    work.state.items[id] = Stored(
        work.scope,
        after,
        # Of its own: two items cut to the same words are still two.
        work.digest("cut", id, after.text),
        index_words(after.text, after.speaker, after.slot),
        detect_traits(after.text, after.role),
    )
    _uncover(work, before)
    episodes.drop_over(work.state, work.scope, id)
    work.mark(id)
    for other in work.state.within(work.scope):
        if any(cite.item == id for cite in _cites(other.item)):
            work.update(other.item.id, sources=tuple(moved(source, id, spans) for source in other.item.sources))


def _entomb(work: Work, text: str) -> None:
    work.state.tombstones.add((work.scope, work.fingerprint(text)))


def _uncover(work: Work, item: Item) -> None:
    """A summary that covers a forgotten message loses its text, and one that is being made will not be stored; one
    without text only says where the window was cleared."""
    if item.session is None or item.place is None:
        return
    key = (work.scope, item.session)
    stored = work.state.summaries.get(key, Summary("", 0, 0))
    covered = bool(stored.text) and item.place < stored.upto
    kept = Summary("", 0, 0) if covered else stored
    work.state.summaries[key] = replace(kept, version=stored.version + 1)


def _cites(item: Item) -> list[Citation]:
    return list(chain.from_iterable(source.cites for source in item.sources))
