"""One request to the page: the memory that it looks at, its values, and the answers that it may get."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from engrain import Memory, Scope, Store
from engrain.core.errors import InvalidInput
from engrain.ui.access import Access
from engrain.ui.addresses import write_owner
from engrain.ui.rendering import render
from engrain.ui.text import show_plain

_NAV: tuple[tuple[str, str, str], ...] = (
    ("timeline", "Timeline", "t"),
    ("ask", "Ask", "a"),
    ("slots", "Slots", "s"),
    ("relations", "Relations", "r"),
    ("sessions", "Sessions", "c"),
    ("tasks", "Tasks", "d"),
    ("repositories", "Repositories", "o"),
    ("privacy", "Privacy", "p"),
    ("doctor", "Doctor", "h"),
)


@dataclass(frozen=True)
class Ui:
    """The store that the page shows, and the memory that it opens with."""

    store: Store
    home: Scope
    access: Access
    name: str = ""
    read_only: bool = False
    cache: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Visit:
    """A request. `form` has the fields of a POST, each once."""

    ui: Ui
    request: Request
    scope: Scope
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.ui.store

    @property
    def memory(self) -> Memory:
        scope = self.scope
        return self.store.memory(user=scope.user, agent=scope.agent, tenant=scope.tenant)

    @property
    def by_htmx(self) -> bool:
        return self.request.headers.get("hx-request") == "true"

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "").strip()

    def query_list(self, name: str) -> list[str]:
        return [one for one in self.request.query_params.getlist(name) if one]

    def value(self, name: str) -> str:
        """A field of the form, with the line breaks of the text and not of the protocol."""
        return self.form.get(name, "").replace("\r\n", "\n")

    def require(self, name: str) -> str:
        text = self.value(name) or self.query(name)
        if not text:
            raise InvalidInput(f"{name} is missing.")
        return text

    def time(self, name: str) -> datetime | None:
        """A time of the query or form. One without a zone is meant as the person's own."""
        text = self.query(name) or self.value(name).strip()
        if not text:
            return None
        try:
            return datetime.fromisoformat(text).astimezone()
        except (ValueError, OverflowError) as exc:
            raise InvalidInput(f"{text!r} is not a time. Write it as 2026-03-14 or 2026-03-14T15:09.") from exc

    def number(self, name: str) -> float | None:
        text = self.query(name) or self.value(name).strip()
        try:
            found = float(text) if text else None
        except ValueError as exc:
            raise InvalidInput(f"{name} is a number, not {text!r}.") from exc
        if found is not None and not math.isfinite(found):
            raise InvalidInput(f"{name} is a number, not {text!r}.")
        return found

    def link(self, page: str, **query: Any) -> str:
        """The address of a page of this memory."""
        encoded = urlencode({key: value for key, value in query.items() if value not in (None, "")}, doseq=True)
        return f"/{write_owner(self.scope)}/{quote(page)}{'?' if encoded else ''}{encoded}"

    # Answers

    def page(self, template: str, **values: Any) -> Response:
        """A whole page; a message of the action before it is shown once."""
        notice = unquote(self.request.cookies.get(self._flash, ""))
        answer = self.fragment(template, said=notice, nav=_NAV, here=template.partition(".")[0], **values)
        if notice:
            answer.delete_cookie(self._flash, path="/", httponly=True, samesite="strict")
        return answer

    def fragment(self, template: str, **values: Any) -> HTMLResponse:
        return HTMLResponse(render(template, self._values() | values))

    def redirect(self, page: str, notice: str = "", **query: Any) -> Response:
        """Go to another page, which says what was done."""
        return self._go_to(self.link(page, **query), notice)

    def return_to(self, page: str, notice: str) -> Response:
        """Go to a page as the person left it, with its filters, if this action was started there."""
        return self._go_to(self.find_current(page) or self.link(page), notice)

    def find_current(self, page: str) -> str:
        """The address of the page that the browser shows, if it is this one; else an empty text."""
        shown = urlsplit(self.request.headers.get("hx-current-url", ""))
        own = self.link(page)
        return f"{own}?{shown.query}" if shown.path == own else ""

    def _go_to(self, address: str, notice: str) -> Response:
        answer: Response
        if self.by_htmx:
            answer = Response(status_code=204, headers={"hx-redirect": address})
        else:
            answer = RedirectResponse(address, 303)
        if notice:
            text = quote(show_plain(notice)[:600])
            answer.set_cookie(self._flash, text, max_age=30, path="/", httponly=True, samesite="strict")
        return answer

    def add_notice(self, answer: HTMLResponse, notice: str) -> HTMLResponse:
        """Let the page show a message together with this part of it."""
        answer.headers["hx-trigger"] = json.dumps({"said": {"text": show_plain(notice)}})
        return answer

    @property
    def _flash(self) -> str:
        return f"{self.ui.access.cookie}_said"

    def _values(self) -> dict[str, Any]:
        return {
            "visit": self,
            "link": self.link,
            "scope": self.scope,
            "owner": show_plain(describe_owner(self.scope)),
            "csrf": self.ui.access.csrf,
            "read_only": self.ui.read_only,
            "store_name": show_plain(self.ui.name),
        }


def describe_owner(scope: Scope) -> str:
    named = [name for name in (scope.user, scope.agent, scope.tenant) if name is not None]
    return " · ".join(named) or "no owner"
