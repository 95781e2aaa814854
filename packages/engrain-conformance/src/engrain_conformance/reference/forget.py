"""Remove an item and everything derived from it, and cut its words out of the items that it cites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from engrain.core.model.items import Citation, Item, Source, is_all_forgotten
from engrain.core.model.plans import Forget, Outcome
from engrain.core.model.queries import Summary
from engrain.core.rules.own_words import detect_stored_traits
from engrain.core.rules.removal import cites_any_span, cut_spans, shift_offset
from engrain.core.rules.tombstone_hashes import hash_cut
from engrain.core.text.passages import Span, index_words
from engrain_conformance.reference import episodes
from engrain_conformance.reference.records import drop_attachments
from engrain_conformance.reference.state import StoredRow, WriteContext


def forget(work: WriteContext, step: Forget) -> Outcome:
    if not work.state.find_item(work.scope, step.id):
        return Outcome(step.id, "missing")
    asked, gone, spans = _plan(work, step)
    if step.unchanged_since is not None and any(work.state.changes[id].seq > step.unchanged_since for id in gone):
        return Outcome(step.id, "stale")
    for id in gone:
        # A summary of the remaining messages may have the same words.
        remove_item(work, id, work.state.items[id].item.kind != "summary" or id in asked)
    marked = [id for id in spans if id not in gone]
    for id in marked:
        _cut(work, id, spans[id])
    return Outcome(step.id, "forgotten", tuple(gone[1:]), tuple(marked))


def list_reached(work: WriteContext, step: Forget) -> list[str]:
    """The ids of all items that forgetting would remove."""
    return _plan(work, step)[1] if work.state.find_item(work.scope, step.id) else []


def _plan(work: WriteContext, step: Forget) -> tuple[list[str], list[str], dict[str, list[Span]]]:
    asked = _list_corrected(work, step.id)
    gone = _close(work, asked)
    spans = {} if step.keep_source else _cited_spans(work, gone, asked)
    return asked, _close(work, [*gone, *_list_citing(work, spans)]), spans


def _list_corrected(work: WriteContext, id: str) -> list[str]:
    found = [id]
    for one in found:
        found += [each.item.id for each in work.state.list_items(work.scope) if _corrected_by(each.item, one)]
    return found


def _close(work: WriteContext, ids: Sequence[str]) -> list[str]:
    """These items, the items they corrected, the items that cite any of them, and so on."""
    gone = list(dict.fromkeys(ids))
    for gone_id in gone:
        for stored in (each.item for each in work.state.list_items(work.scope)):
            near = _corrected_by(stored, gone_id) or any(cite.item == gone_id for cite in _list_citations(stored))
            if near and stored.id not in gone:
                gone.append(stored.id)
    return gone


def _corrected_by(item: Item, id: str) -> bool:
    return item.replaced_by == id and item.retracted_at is not None


def _cited_spans(work: WriteContext, gone: Sequence[str], asked: Sequence[str]) -> dict[str, list[Span]]:
    """The spans to cut, by remaining item.

    A citation of a whole item counts only if the forgotten item has it, and citations of summaries never count:
    otherwise forgetting one message would remove every other message of the session.
    """
    items = work.state.items
    spans: dict[str, list[Span]] = {}
    for id in gone:
        if items[id].item.kind == "summary":
            continue
        for cite in _list_citations(items[id].item):
            whole = cite.start is None and cite.end is None
            if cite.item not in gone and not cite.wordless and (id in asked or not whole):
                spans.setdefault(cite.item, []).append(cite.find_span(len(items[cite.item].item.text)))
    return spans


def _list_citing(work: WriteContext, spans: Mapping[str, Sequence[Span]]) -> list[str]:
    """The items that cite words that are cut."""
    return [
        each.item.id
        for each in work.state.list_items(work.scope)
        if any(cites_any_span(cite.start, cite.end, spans.get(cite.item, ())) for cite in _list_citations(each.item))
    ]


def remove_item(work: WriteContext, id: str, tombstoned: bool) -> None:
    stored = work.state.items.pop(id)
    if tombstoned:
        work.add_tombstone(stored.item.text)
    _invalidate_summary(work, stored.item)
    episodes.drop_item_episodes(work.state, work.scope, id)
    drop_attachments(work.state, work.scope, id)
    for key in [key for key in work.state.trials if key[:2] == (work.scope, id)]:
        del work.state.trials[key]
    work.mark_changed(id, gone=True)


def _cut(work: WriteContext, id: str, spans: Sequence[Span]) -> None:
    before = work.state.items[id].item
    for text in (before.text, *(before.text[start:end] for start, end in spans)):
        work.add_tombstone(text)
    # A relation would repeat in other fields what was cut out of the text.
    after = replace(before, text=cut_spans(before.text, spans), relation=None)
    work.state.items[id] = StoredRow(
        work.scope,
        after,
        hash_cut(work.state.key, id, after.text),
        index_words(after.text, after.speaker, after.slot),
        detect_stored_traits(after.text, after.role),
    )
    _invalidate_summary(work, before)
    episodes.drop_item_episodes(work.state, work.scope, id)
    if is_all_forgotten(after.text):
        drop_attachments(work.state, work.scope, id)
    work.mark_changed(id)
    for other in work.state.list_items(work.scope):
        if any(cite.item == id for cite in _list_citations(other.item)):
            work.update(
                other.item.id, sources=tuple(shift_citations(source, id, spans) for source in other.item.sources)
            )


def _invalidate_summary(work: WriteContext, item: Item) -> None:
    """Drop the text of a summary that covers the message, and reject one that is being made.

    A summary without text only says where the window was cleared.
    """
    if item.session is None or item.place is None:
        return
    key = (work.scope, item.session)
    stored = work.state.summaries.get(key, Summary("", 0, 0))
    covered = bool(stored.text) and item.place < stored.upto
    kept = Summary("", 0, 0) if covered else stored
    work.state.summaries[key] = replace(kept, version=stored.version + 1)


def _list_citations(item: Item) -> list[Citation]:
    return list(chain.from_iterable(source.cites for source in item.sources))


def shift_citations(source: Source, item: str, spans: Sequence[Span]) -> Source:
    """Move the source's citations of `item` to where their text is after the cut."""

    def after(cite: Citation) -> Citation:
        return Citation(item, shift_offset(cite.start, spans), shift_offset(cite.end, spans))

    return replace(source, cites=tuple(after(cite) if cite.item == item else cite for cite in source.cites))
