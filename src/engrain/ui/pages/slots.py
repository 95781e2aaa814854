"""Slots: the value of each now or at an earlier time, and every value that it has had."""

from __future__ import annotations

from starlette.responses import Response

from engrain.ui.page_request import Visit


def show_slots(visit: Visit) -> Response:
    prefix, as_of = visit.query("prefix"), visit.time("as_of")
    slots = visit.memory.slots.list(prefix, as_of=as_of)
    if visit.by_htmx:
        answer = visit.fragment("_slots.html", slots=slots, prefix=prefix, as_of=as_of)
        when = as_of.isoformat(timespec="seconds") if as_of else ""
        answer.headers["hx-replace-url"] = visit.link("slots", prefix=prefix, as_of=when)
        return answer
    return visit.page("slots.html", slots=slots, prefix=prefix, as_of=as_of)


def show_history(visit: Visit) -> Response:
    name = visit.require("name")
    return visit.fragment("_slot_history.html", name=name, versions=visit.memory.slots.history(name)[::-1])
