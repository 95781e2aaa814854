"""Let in only the person who started the page: host, token, cookie, CSRF token and the headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PUBLIC_PREFIX = "/static/"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": CSP,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True)
class Access:
    """The secrets of one run, and the names under which the page may be called.

    Cookies ignore the port, so the cookie's name has it: two pages on one machine keep their sessions.
    """

    hosts: Collection[str]
    cookie: str = "engrain_ui"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def csrf(self) -> str:
        return hmac.new(self.session.encode(), b"csrf", hashlib.sha256).hexdigest()

    def is_signed_in(self, connection: HTTPConnection) -> bool:
        return _is_equal(connection.cookies.get(self.cookie), self.session)

    def is_own_form(self, headers: Headers, token: str | None) -> bool:
        """Tell if a POST comes from a page of ours.

        With `no-referrer` a browser sends the origin of a form as "null": the token decides then.
        """
        origin = headers.get("origin", "null")
        own_origin = origin == "null" or origin.partition("://")[2] in self.hosts
        own_site = headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        return own_origin and own_site and _is_equal(token or headers.get("x-csrf-token"), self.csrf)


class AccessMiddleware:
    """Checks the host, turns the token of an address into a cookie, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access, locked_page: str) -> None:
        self.app = app
        self.access = access
        self.locked_page = locked_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        connection = HTTPConnection(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._refuse(connection) or self.app
        await answer(scope, receive, send_with_headers)

    def _refuse(self, connection: HTTPConnection) -> Response | None:
        """Return the answer to a caller who may not go on; None for one who may."""
        if connection.headers.get("host") not in self.access.hosts:
            return PlainTextResponse("This address is not served here.\n", 421)
        if connection.url.path.startswith(PUBLIC_PREFIX):
            return None
        if "token" in connection.query_params:
            return self._sign_in(connection)
        return None if self.access.is_signed_in(connection) else HTMLResponse(self.locked_page, 401)

    def _sign_in(self, connection: HTTPConnection) -> Response:
        if not _is_equal(connection.query_params["token"], self.access.token):
            return HTMLResponse(self.locked_page, 401)
        rest = urlencode([(key, value) for key, value in parse_qsl(connection.url.query) if key != "token"])
        # One slash: "//host" would be an address of somebody else.
        path = "/" + connection.url.path.lstrip("/")
        answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
        answer.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict", path="/")
        return answer


def _is_equal(value: str | None, right: str) -> bool:
    return value is not None and hmac.compare_digest(value.encode(), right.encode())
