"""Sessions and their messages."""

from __future__ import annotations

from starlette.responses import Response

from engrain import NotFound
from engrain.ui.page_request import Visit

MAX_SESSIONS = 200
PAGE_SIZE = 100


def show_sessions(visit: Visit) -> Response:
    return visit.page("sessions.html", sessions=visit.memory.sessions.list(MAX_SESSIONS), most=MAX_SESSIONS)


def show_session(visit: Visit) -> Response:
    """The newest messages, oldest of them first; `skip` of the newest are on the page already."""
    name, skip = visit.require("name"), max(0, int(visit.number("skip") or 0))
    read = visit.memory.sessions.messages(name, PAGE_SIZE + skip + 1)
    messages = read[: len(read) - skip] if skip else read
    older, messages = len(messages) > PAGE_SIZE, messages[-PAGE_SIZE:]
    values = {"name": name, "messages": messages, "older": skip + PAGE_SIZE if older else None}
    if visit.by_htmx:
        return visit.fragment("_messages.html", **values)
    summary = visit.memory.slots.get(f"session:{name}")
    if not messages and summary is None:
        raise NotFound(f"there is no session {name!r} in this memory.")
    return visit.page("session.html", summary=summary, **values)
