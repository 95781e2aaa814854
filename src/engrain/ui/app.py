"""The routes of the page, and how a request becomes a visit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from engrain import EngrainError, InvalidInput, NotFound, TooLarge
from engrain.ui.access import AccessMiddleware
from engrain.ui.addresses import read_owner, write_owner
from engrain.ui.page_request import Ui, Visit
from engrain.ui.pages import (
    ask,
    doctor,
    memories,
    one_item,
    privacy,
    relations,
    repositories,
    sessions,
    slots,
    tasks,
    timeline,
)
from engrain.ui.rendering import render

Show = Callable[[Visit], Response]
MAX_FORM_BYTES = 8 << 20
STATIC = Path(__file__).with_name("static")
_STATUS: tuple[tuple[type[EngrainError], int], ...] = ((NotFound, 404), (TooLarge, 413), (InvalidInput, 422))
_log = logging.getLogger("engrain")

# Every page hangs below the owner of its memory: /user=ana/timeline.
PAGES: dict[str, Show] = {
    "timeline": timeline.show_timeline,
    "timeline/items": timeline.show_items,
    "timeline/overview": timeline.send_overview,
    "timeline/new": timeline.show_new,
    "remember": one_item.show_remember_dialog,
    "ask": ask.show_ask,
    "ask/prompt": ask.show_prompt,
    "item": one_item.show_item,
    "item/edit": one_item.show_edit_dialog,
    "item/correct": one_item.show_correct_dialog,
    "item/forget": one_item.show_forget_dialog,
    "slots": slots.show_slots,
    "slots/history": slots.show_history,
    "relations": relations.show_relations,
    "relations/graph": relations.send_graph,
    "sessions": sessions.show_sessions,
    "session": sessions.show_session,
    "tasks": tasks.show_tasks,
    "task": tasks.show_task,
    "task/act": tasks.show_action_dialog,
    "repositories": repositories.show_repositories,
    "privacy": privacy.show_privacy,
    "privacy/preview": privacy.show_preview,
    "privacy/receipt": privacy.send_receipt,
    "privacy/export": privacy.send_export,
    "doctor": doctor.show_doctor,
    "doctor/checks": doctor.show_checks,
    "memories": memories.show_memories,
}
ACTIONS: dict[str, Show] = {
    "remember": one_item.remember,
    "item/pin": one_item.pin,
    "item/edit": one_item.edit,
    "item/correct": one_item.correct,
    "item/forget": one_item.forget,
    "task/act": tasks.act,
    "privacy/hold": privacy.hold,
    "privacy/release": privacy.release,
    "privacy/erase": privacy.erase,
    "privacy/verify": privacy.verify,
    "doctor/maintain": doctor.maintain,
}


def build_app(ui: Ui) -> Starlette:
    routes: list[BaseRoute] = [
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
        Route("/", lambda request: RedirectResponse(f"/{write_owner(ui.home)}/timeline", 303)),
        *(Route(f"/{{owner}}/{name}", _serve_page(ui, show), methods=["GET"]) for name, show in PAGES.items()),
        *(Route(f"/{{owner}}/{name}", _serve_action(ui, act), methods=["POST"]) for name, act in ACTIONS.items()),
    ]
    guard = Middleware(AccessMiddleware, access=ui.access, locked_page=render("locked.html", {}))
    return Starlette(routes=routes, middleware=[guard], exception_handlers={404: _say_not_found(ui)})


def _serve_page(ui: Ui, show: Show) -> Callable[[Request], object]:
    async def serve(request: Request) -> Response:
        return await run_in_threadpool(_answer, ui, request, {}, show)

    return serve


def _serve_action(ui: Ui, act: Show) -> Callable[[Request], object]:
    async def serve(request: Request) -> Response:
        body = await _read_body(request)
        if body is None:
            return HTMLResponse(f"A form may have {MAX_FORM_BYTES:,} bytes.", 413)
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not ui.access.is_own_form(request.headers, form.pop("csrf", None)):
            return HTMLResponse("This form is not from this page. Load the page again.", 403)
        return await run_in_threadpool(_answer, ui, request, form, act)

    return serve


async def _read_body(request: Request) -> bytes | None:
    """Read a form; None if it is too large."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            return None
    return bytes(body)


def _answer(ui: Ui, request: Request, form: dict[str, str], show: Show) -> Response:
    visit = Visit(ui, request, ui.home, form)
    try:
        visit = Visit(ui, request, read_owner(request.path_params["owner"]), form)
        return show(visit)
    except EngrainError as exc:
        return _explain(visit, exc)
    except Exception:  # noqa: BLE001
        # The rim: a defect is logged with its traceback, and the page says so instead of going blank.
        _log.exception("the page %s failed", request.url.path)
        return _explain(visit, None)


def _explain(visit: Visit, error: EngrainError | None) -> Response:
    """Say what is wrong, in the place of the page or in a part of it."""
    why = "This is a defect of engrain. The terminal has the details." if error is None else str(error)
    answer = visit.fragment("_problem.html", why=why) if visit.by_htmx else visit.page("problem.html", why=why)
    known = next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
    answer.status_code = 500 if error is None else known
    return answer


def _say_not_found(ui: Ui) -> Callable[[Request, Exception], Response]:
    def say(request: Request, error: Exception) -> Response:
        return _explain(Visit(ui, request, ui.home), NotFound("there is no such page."))

    return say
