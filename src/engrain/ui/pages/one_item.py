"""One item: its text, origin, versions and derivatives; edit, correct, pin, forget it, or remember a new one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from engrain import ConfigError, InvalidInput, Item, Memory
from engrain.core.model.items import RESERVED_KEY
from engrain.core.model.results import Explanation, explain_trust
from engrain.core.validation import count_noun
from engrain.tiers.semantic import MAX_DERIVED, find_derived
from engrain.ui.page_request import Visit
from engrain.ui.text import Span


def show_item(visit: Visit) -> Response:
    values = _load(visit)
    return (
        visit.fragment("_item.html", peek=True, row=False, **values)
        if visit.by_htmx
        else visit.page("item.html", **values)
    )


def show_edit_dialog(visit: Visit) -> Response:
    item = _find(visit)
    return visit.fragment("_edit.html", item=item, metadata=_own_metadata(item))


def show_correct_dialog(visit: Visit) -> Response:
    return visit.fragment("_correct.html", item=_find(visit))


def show_forget_dialog(visit: Visit) -> Response:
    item = _find(visit)
    derived = find_derived(visit.memory.explain, item.id)
    return visit.fragment("_forget.html", item=item, derived=derived, more=len(derived) >= MAX_DERIVED,
                          counts=_count_removed(visit.memory, item.id))  # fmt: skip


def show_remember_dialog(visit: Visit) -> Response:
    return visit.fragment("_remember.html")


def remember(visit: Visit) -> Response:
    importance = visit.number("importance")
    id = visit.memory.remember(
        visit.value("text"),
        slot=visit.value("slot").strip() or None,
        importance=0.5 if importance is None else importance,
    )
    return visit.redirect("item", "Remembered.", id=id)


def pin(visit: Visit) -> Response:
    item, pinned = _find(visit), visit.value("pinned") == "1"
    visit.memory.update(item.id, pinned=pinned)
    return _show_again(visit, "Pinned: maintenance never removes it." if pinned else "Unpinned.")


def edit(visit: Visit) -> Response:
    item = _find(visit)
    reserved = {key: value for key, value in item.metadata.items() if key == RESERVED_KEY}
    visit.memory.update(
        item.id,
        importance=visit.number("importance"),
        metadata={**_parse_metadata(visit.value("metadata")), **reserved},
        expires_at=visit.time("expires_at"),
    )
    return _show_again(visit, "Saved.")


def correct(visit: Visit) -> Response:
    id = visit.memory.correct(_find(visit).id, visit.value("text"))
    return visit.redirect("item", "Corrected. The old text answers no question any more.", id=id)


def forget(visit: Visit) -> Response:
    done = visit.memory.forget(_find(visit).id, keep_source=visit.value("keep_source") == "1")
    more = f", with {count_noun(len(done.ids) - 1, 'other item')} that belonged to it" if len(done.ids) > 1 else ""
    cut = f" Its words were cut out of {count_noun(len(done.marked), 'message')}." if done.marked else ""
    later = " A reader still holds the bytes; they are overwritten when it ends." if done.pending else ""
    return visit.return_to("timeline", f"Forgotten{more}.{cut}{later}")


def find_cited_spans(item: Item) -> dict[str, list[Span]]:
    """The spans that the item cites, by the id of the cited item. A citation without a span marks nothing."""
    spans: dict[str, list[Span]] = {}
    for source in item.sources:
        for cite in source.cites:
            if cite.start is not None and cite.end is not None and not cite.wordless:
                spans.setdefault(cite.item, []).append((cite.start, cite.end))
    return spans


def _load(visit: Visit) -> dict[str, Any]:
    why = visit.memory.explain(_find(visit).id)
    own = find_cited_spans(why.item)
    return {
        "why": why,
        "item": why.item,
        "trust": _split_trust(why),
        "versions": _order_versions(why),
        "metadata": _own_metadata(why.item),
        "cites": [(cited, own.get(cited.id, [])) for cited in why.cites],
        "cited_by": [(child, find_cited_spans(child).get(why.item.id, [])) for child in why.cited_by],
    }  # fmt: skip


def _split_trust(why: Explanation) -> tuple[str, str, str]:
    """The reason of the trust: the words before and after the id of an item, and that id."""
    reason = explain_trust(why)
    id = next((cited.id for cited in why.cites if cited.id in reason), "")
    before, _, after = reason.partition(id) if id else (reason, "", "")
    return before, id, after


def _order_versions(why: Explanation) -> list[Item]:
    """All versions, newest first, with this one; none if there is only this one."""
    every = {version.id: version for version in (*why.versions, why.item)}
    return sorted(every.values(), key=lambda version: version.id, reverse=True) if len(every) > 1 else []


def _find(visit: Visit) -> Item:
    return visit.memory.explain(visit.require("id")).item


def _show_again(visit: Visit, problem: str) -> Response:
    if not visit.by_htmx:
        return visit.redirect("item", problem, id=visit.require("id"))
    # Beside the timeline its row changes, too.
    beside = bool(visit.find_current("timeline"))
    answer = visit.fragment("_item.html", peek=visit.value("peek") == "1", row=beside, **_load(visit))
    return visit.add_notice(answer, problem)


def _own_metadata(item: Item) -> Mapping[str, Any]:
    return {key: value for key, value in item.metadata.items() if key != RESERVED_KEY}


def _parse_metadata(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"the metadata is not JSON: {exc}.") from exc
    if not isinstance(values, dict) or RESERVED_KEY in values:
        raise InvalidInput(f'metadata is a JSON object such as {{"project": "apollo"}}, without {RESERVED_KEY!r}.')
    return values


def _count_removed(memory: Memory, id: str) -> Mapping[str, int]:
    """The rows that go; none where a store cannot count them."""
    try:
        return memory.erase(id=id, dry_run=True).counts
    except ConfigError:
        return {}
