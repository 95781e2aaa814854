"""Hash texts and items: a tombstone blocks a forgotten text by its hash, and equal hashes are repeats of one item."""

from __future__ import annotations

from collections.abc import Iterable

from engrain.core.identity import hash_keyed
from engrain.core.model.items import FORGOTTEN, Draft, Item


def hash_tombstone(key: bytes, text: str) -> str:
    """Hash a text that was removed: only the very same text is blocked."""
    return hash_keyed(key, "text", text)


def hash_item(key: bytes, item: Item) -> str:
    return hash_cut(key, item.id, item.text) if FORGOTTEN in item.text else hash_draft(key, item)


def hash_cut(key: bytes, id: str, text: str) -> str:
    """Hash a cut item with its id: two items cut to the same words stay two items."""
    return hash_keyed(key, "cut", id, text)


def hash_draft(key: bytes, draft: Draft | Item) -> str:
    """Hash the content of an item. Equal hashes are repeats of one item."""
    relation = draft.relation
    parts = (relation.subject, relation.relation, relation.object) if relation else ()
    return hash_keyed(key, "item", draft.kind, draft.text, *parts)


def group_by_scope(tombstones: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Group the hashes of tombstones by the id of their scope."""
    found: dict[str, set[str]] = {}
    for scope, digest in tombstones:
        found.setdefault(scope, set()).add(digest)
    return found
