"""Answer the verbs and keywords of other memory systems with the ones that are meant."""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from engrain.core.validation import find_similar_names

T = TypeVar("T", bound=type)

# Of mem0, Letta, Zep and Graphiti, LangGraph's store, vector stores.
VERBS: Mapping[str, str] = {
    "add": "remember(text) for a text, or add_message(role, text) for what is said",
    "put": "remember(text, slot=…) for a text, or records.write for data by key",
    "insert": "remember(text)",
    "add_episode": "remember(text, occurred_at=…), or episodic for events",
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
# Parameters of the same meaning: a verb has one of them, or none.
_SAME: Mapping[str, tuple[str, ...]] = {
    "limit": ("n",),
    "n": ("limit",),
    "top_k": ("n", "limit"),
    "k": ("n", "limit"),
    "filters": ("where",),
    "filter": ("where",),
    "threshold": ("min_relevance",),
    "user_id": ("user",),
    "username": ("user",),
    "agent_id": ("agent",),
    "memory_id": ("id", "what"),
    "run_id": ("session", "id"),
    "session_id": ("session", "id"),
    "thread_id": ("session", "id"),
}
_SESSION = "session= of add_message, or memory.session(id)"
_ELSEWHERE: Mapping[str, str] = {
    "user_id": "user= where the memory is opened: Memory(path, user=…) or store.memory(user=…)",
    "agent_id": "agent= where the memory is opened: Memory(path, agent=…) or store.memory(agent=…)",
    "tags": 'metadata={"tags": […]}',
    "data": "correct(id, text) for another text",
    "run_id": _SESSION,
    "session_id": _SESSION,
    "thread_id": _SESSION,
}
# Where Python binds the arguments of a decorated verb, and of a verb on a server.
_BINDING_FILES = (contextlib.__file__, inspect.__file__)


def make_attribute_error(owner: object, name: str) -> AttributeError:
    """Make the error for a missing attribute, with the verb that is meant if another system has one of this name."""
    from engrain.memory import Memory, Store

    is_store = hasattr(type(owner), "memories")
    place = " of a memory: store.memory(user=…)" if is_store else ""
    hint = f". Use {VERBS[name]}{place}." if name in VERBS else ""
    if not hint and not name.startswith("_") and hasattr(Memory if is_store else Store, name):
        hint = f". Use {'store.memory(user=…)' if is_store else 'memory.store'}.{name}."
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=owner)


def answer_other_names(face: T) -> T:
    """Let a class say which verb or keyword is meant when it is asked for one of another system."""
    for name, verb in list(vars(face).items()):
        if _takes_arguments(name, verb):
            setattr(face, name, _explain(face, verb)(verb))
    if not hasattr(face, "__getattr__"):
        setattr(face, "__getattr__", _refuse_name)  # noqa: B010  # unseen by type checkers, which find such names
    return face


def _takes_arguments(name: str, verb: object) -> bool:
    # A coroutine function hands its arguments to the verb of the other face.
    public = name == "__init__" or not name.startswith("_")
    return public and inspect.isfunction(verb) and not inspect.iscoroutinefunction(verb)


def _refuse_name(self: object, name: str) -> NoReturn:
    raise make_attribute_error(self, name)


# As a context manager it has no frame of its own between a verb and its caller.
@contextlib.contextmanager
def _explain(face: type, verb: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except TypeError as exc:
        if found := _find_keyword(exc, verb):
            keyword, meant = found
            wrong = f"{face.__name__}.{verb.__name__}() got an unexpected keyword argument {keyword!r}"
            raise TypeError(f"{wrong}. Use {meant}.") from None
        raise


def _find_keyword(error: TypeError, verb: Callable[..., Any]) -> tuple[str, str] | None:
    """Return the keyword that a verb was called with though it has none of this name, and what is meant by it."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    if frame.f_code.co_filename not in _BINDING_FILES:  # the verb had begun
        return None
    known = inspect.signature(verb).parameters
    for keyword in {**_SAME, **_ELSEWHERE}:
        # The wording is that of Python's version; each of them quotes the name.
        if keyword not in known and repr(keyword) in str(error):
            same = next((f"{name}=" for name in _SAME.get(keyword, ()) if name in known), None)
            meant = same or _ELSEWHERE.get(keyword)
            return (keyword, meant) if meant else None
    wrong = re.search(r"keyword argument '(\w+)'", str(error))
    similar = find_similar_names(wrong[1], known) if wrong and wrong[1] not in known else []
    return (wrong[1], f"{similar[0]}=") if wrong and similar else None
