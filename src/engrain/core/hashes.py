"""The keyed hashes by which a store knows a text again."""

from __future__ import annotations

from engrain.core.erasure import keyed
from engrain.core.items import FORGOTTEN, Item


def item_hash(key: bytes, item: Item) -> str:
    """Of one that was cut it has its id in it: two items cut to the same words are still two."""
    if FORGOTTEN in item.text:
        return keyed(key, "cut", item.id, item.text)
    relation = item.relation
    parts = (relation.subject, relation.relation, relation.object) if relation else ()
    return keyed(key, "item", item.kind, item.text, *parts)


def tombstone_hash(key: bytes, text: str) -> str:
    return keyed(key, "text", text)
