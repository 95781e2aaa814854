"""Answer the verbs and keywords of other memory systems with the ones that are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T", bound=type)

# Of mem0, Letta, Zep and Graphiti, LangGraph's store, vector stores.
VERBS: Mapping[str, str] = {
    "add": "remember(text) keeps a text; add_message(role, text) keeps what is said, and the facts in it",
    "put": "remember(text, slot=…) keeps a text; memory.records.write keeps data by key",
    "insert": "remember(text)",
    "add_episode": "remember(text, occurred_at=…), or memory.episodic for events",
    "search": "recall(query, n=5)",
    "query": "recall(query, n=5)",
    "similarity_search": "recall(query, n=5)",
    "get_all": "list({…}, limit=100)",
    "get_context": "prompt(request), or recall(query)",
    "delete": "forget(id)",
    "delete_all": "erase()",
    "reset": "erase()",
    "history": "slots.history(name), or explain(id)",
    "get_memory": "get(id)",
    "checkpoint": "tasks.checkpoint(id, state)",
}
KEYWORDS: Mapping[str, str] = {
    "limit": "n=",
    "top_k": "n=",
    "k": "n=",
    "filters": "where=",
    "filter": "where=",
    "threshold": "min_relevance=",
    "user_id": "user= where the memory is opened: Memory(path, user=…) or store.memory(user=…)",
    "agent_id": "agent= where the memory is opened: Memory(path, agent=…) or store.memory(agent=…)",
    "run_id": "session= of add_message, or memory.session(id)",
    "session_id": "session= of add_message, or memory.session(id)",
    "thread_id": "session= of add_message, or memory.session(id)",
}
_UNEXPECTED = re.compile(r"\w+\.\w+\(\) got an unexpected keyword argument '(\w+)'")
_CHECKED_VERBS = ("__init__", "memory", "remember", "remember_many", "recall", "list", "add_message", "add_messages")


def make_attribute_error(owner: object, name: str) -> AttributeError:
    """Make the error for a missing attribute, with the verb that is meant if another system has one of this name."""
    hint = f". Use {VERBS[name]}." if name in VERBS else ""
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)


def explain_keywords(face: T) -> T:
    """Let the verbs of a class say which keyword is meant when they get one of another system."""
    for name in _CHECKED_VERBS:
        if name in vars(face):
            setattr(face, name, _explain()(vars(face)[name]))
    return face


# As a context manager it has no frame of its own between a verb and its caller.
@contextmanager
def _explain() -> Iterator[None]:
    try:
        yield
    except TypeError as exc:
        found = _UNEXPECTED.fullmatch(str(exc))
        if found is None or found[1] not in KEYWORDS:
            raise
        raise TypeError(f"{exc}. Use {KEYWORDS[found[1]]}.") from None
