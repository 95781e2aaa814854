"""Build the drafts, plans and queries of the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Citation, Draft, Item, SessionPosition, Source
from engrain.core.model.plans import Add, Correct, Forget, Outcome, Plan
from engrain.core.model.queries import ListQuery, VectorQuery, WordQuery
from engrain.core.rules.statements import detect_traits
from engrain.core.text.passages import index_words
from engrain.core.text.tokenizer import extract_terms
from engrain.ports.items import ItemStore
from engrain_conformance.embedder import HashEmbedder

EMBEDDER = HashEmbedder()
MODEL = EMBEDDER.model.key

ANA = Scope("acme", "helper", "ana")
BEN = Scope("acme", "helper", "ben")

# Names that have broken other stores: quotes, wildcards, separators, other scripts, long ones, and missing parts.
HOSTILE = (
    "", " ", "'", '"', "`", "' or 1=1 --", "'; drop table item; --", "%", "_", "*", "\\", "/", "..", "a.b", "a:b",
    "a|b", "{}", "[]", "null", "None", "-", "ünïcödé", "日本語", "עברית", "😀", "\u202etxt", "e\u0301", "é", "\n",
    "A", "a", "x" * 500,
)  # fmt: skip


def hostile_scopes() -> list[Scope]:
    """Scopes that a careless key or predicate would take for one another."""
    named = [Scope(user=name) for name in HOSTILE]
    shifted = [Scope("ab", "c", None), Scope("a", "bc", None), Scope("ab", None, "c"), Scope(None, "ab", "c"), Scope()]
    return [*named, *shifted, Scope("", None, None), Scope(None, "", None), Scope("", "", "")]


def fact(text: str, **values: Any) -> Draft:
    """A draft with the words, vectors and traits that the write path would give it."""
    position: SessionPosition | None = values.get("position")
    speaker, role = (position.speaker, position.role) if position else (None, None)
    words = index_words(text, speaker, values.get("slot"))
    computed = {"words": words, "vectors": EMBEDDER.vectors(text), "traits": detect_traits(text, role)}
    return Draft(text, **{**computed, **values})


def message(text: str, session: str = "monday", number: int | None = None, **values: Any) -> Draft:
    position = SessionPosition(session, number, values.pop("speaker", "Ana"), values.pop("role", "user"))
    return fact(text, kind="message", position=position, **values)


def derived(text: str, *cites: Citation, **values: Any) -> Draft:
    """What extraction makes of other items."""
    return fact(text, source=Source(kind="agent", cites=cites), derived=True, **values)


def without_vectors(text: str, **values: Any) -> Draft:
    """A draft without vectors."""
    return fact(text, vectors=None, **values)


def add(store: ItemStore, *drafts: Draft, scope: Scope = ANA) -> list[str]:
    """The ids of the drafts, added in one plan."""
    outcomes = store.apply(Plan(scope, tuple(Add(draft) for draft in drafts))).outcomes
    return [outcome.id or "" for outcome in outcomes]


def add_one(store: ItemStore, draft: Draft, scope: Scope = ANA) -> Outcome:
    return store.apply(Plan(scope, (Add(draft),))).outcomes[0]


def append_messages(store: Any, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None = None) -> Any:
    """Append messages to a session of the store of the items. Conflict if it has not the expected length."""
    steps = tuple(Add(replace(draft, position=draft.position or SessionPosition(session))) for draft in drafts)
    return store.apply(Plan(scope, steps, expect=None if expect is None else (session, expect)))


def correct(store: ItemStore, id: str, draft: Draft, scope: Scope = ANA) -> Outcome:
    return store.apply(Plan(scope, (Correct(id, draft),))).outcomes[0]


def forget(store: ItemStore, id: str, keep_source: bool = False, scope: Scope = ANA) -> Outcome:
    return store.apply(Plan(scope, (Forget(id, keep_source),))).outcomes[0]


def get_item(store: ItemStore, id: str | None, scope: Scope = ANA) -> Item:
    (item,) = store.get_many(scope, [id or ""])
    return item


def list_items(store: ItemStore, scope: Scope = ANA, **values: Any) -> list[Item]:
    """Pages through everything; `where` may be a dict."""
    values["where"] = parse_filter(values.get("where"))
    return store.page(ListQuery(scope, **{"limit": 10_000, **values}))


def texts(items: list[Item]) -> list[str]:
    return [item.text for item in items]


def vector_query(text: str, scope: Scope = ANA, **values: Any) -> VectorQuery:
    values["where"] = parse_filter(values.get("where"))
    model = values.pop("model", MODEL)
    return VectorQuery(EMBEDDER.embed([text], "query")[0], model, scope, **values)


def word_query(text: str, scope: Scope = ANA, **values: Any) -> WordQuery:
    values["where"] = parse_filter(values.get("where"))
    return WordQuery(tuple(dict.fromkeys(extract_terms(text))), scope, **values)
