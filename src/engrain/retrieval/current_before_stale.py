"""Put what holds now before what no longer holds, or may no longer hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

from engrain.core.clock import check_time
from engrain.core.errors import InvalidInput
from engrain.core.model.items import ASPECT_KEY, LATER_KEY, RESERVED_KEY, Item
from engrain.core.model.recall import Hit

ONE_TURN = timedelta(minutes=1)  # a message and its facts are not written at quite the same moment
# A newer fact changes places with an older one of its aspect only if it has this share of the best relevance among
# them: the date of a birth does not answer when a review is.
MIN_RELEVANCE_SHARE = 0.5
K = TypeVar("K")


def find_later(item: Item, at: datetime | None) -> datetime | None:
    """Return since when something newer was said about the item's matter, by the moment that is asked for."""
    own = item.metadata.get(RESERVED_KEY)
    since = own.get(LATER_KEY) if isinstance(own, Mapping) else None
    try:
        later = check_time(since, "later") if isinstance(since, str) else None
    except InvalidInput:  # out of a file that somebody else wrote
        return None
    return later if later and (at is None or later <= at) else None


def is_outdated_by_any(old: Hit, hits: Iterable[Hit]) -> bool:
    """Tell if one of these hits is of the turn since which a hit counts as earlier."""
    since = find_later(old.item, None)
    return since is not None and any(abs(_get_time(hit.item) - since) <= ONE_TURN for hit in hits)


def put_current_first(hits: Mapping[K, Hit], at: datetime | None) -> dict[K, Hit]:
    """Move what no longer holds to the end, and what is earlier behind what was said later."""
    ordered = sorted(hits.items(), key=lambda pair: pair[1].stale and not pair[1].earlier)
    ordered = _put_newest_first(ordered)
    for pair in [pair for pair in ordered if pair[1].earlier]:
        since = find_later(pair[1].item, at)
        later = [place for place, (_, hit) in enumerate(ordered) if since and hit.item.recorded_at >= since]
        place = ordered.index(pair)
        if later and later[-1] > place:
            ordered.insert(later[-1], ordered.pop(place))
    return dict(ordered)


def _put_newest_first(ordered: list[tuple[K, Hit]]) -> list[tuple[K, Hit]]:
    """Let current facts of one aspect, such as two cities, change places so that the newest comes first."""
    places: dict[str, list[int]] = {}
    for place, (_, hit) in enumerate(ordered):
        own = hit.item.metadata.get(RESERVED_KEY)
        aspect = own.get(ASPECT_KEY) if isinstance(own, Mapping) else None
        if isinstance(aspect, str) and hit.item.kind == "fact" and not hit.stale:
            places.setdefault(aspect, []).append(place)
    swapped = list(ordered)
    for of_aspect in places.values():
        least = MIN_RELEVANCE_SHARE * max(ordered[place][1].relevance for place in of_aspect)
        some = [place for place in of_aspect if ordered[place][1].relevance >= least]
        newest = sorted(some, key=lambda place: _get_time(ordered[place][1].item), reverse=True)
        for place, other in zip(some, newest, strict=True):
            swapped[place] = ordered[other]
    return swapped


def _get_time(item: Item) -> datetime:
    return item.occurred_at or item.recorded_at
