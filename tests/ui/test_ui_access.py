"""Only the person who started the page gets in, and no other site can act for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
from examples import for_each
from ui_kit import Page

import engrain.ui
from engrain.ui.access import CSP
from engrain.ui.app import ACTIONS, PAGES

VENDOR = Path(engrain.ui.__file__).parent / "static" / "vendor"


def test_without_the_token_no_page_is_shown(page: Page) -> None:
    for path in (*PAGES, "nothing/here"):
        answer = httpx.get(page.address + page.path(path))
        assert answer.status_code == 401
        assert "Ana" not in answer.text
    assert httpx.get(f"{page.address}/?token=wrong").status_code == 401
    assert httpx.get(f"{page.address}/", cookies={page.ui.access.cookie: "wrong"}).status_code == 401


def test_the_token_becomes_a_strict_cookie_and_leaves_the_address(page: Page) -> None:
    answer = httpx.get(page.address + page.path("timeline"), params={"token": page.ui.access.token, "text": "tea"})
    assert answer.status_code == 303
    assert answer.headers["location"] == page.path("timeline") + "?text=tea"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert page.ui.access.token not in cookie


def test_the_entrance_leads_nowhere_else(page: Page) -> None:
    answer = httpx.get(f"{page.address}//evil.example/?token={page.ui.access.token}")
    assert answer.headers["location"] == "/evil.example/"


@for_each("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_host_name_is_refused(page: Page, host: str) -> None:
    answer = page.client.get(page.path("timeline"), headers={"host": host})
    assert answer.status_code in (400, 421)
    assert "Ana" not in answer.text


def test_every_action_needs_the_csrf_token(page: Page) -> None:
    before = page.memory.list(limit=1_000, history=True)
    id = before[0].id
    for path in ACTIONS:
        form = {"id": id, "text": "x", "user": "ana", "target": "user", "typed": "ana", "name": "order-42"}
        assert page.client.post(page.path(path), data=form).status_code == 403
        assert page.client.post(page.path(path), data={**form, "csrf": "wrong"}).status_code == 403
        assert page.client.get(page.path(path), params=form).status_code in (200, 404, 405, 422)
    assert page.memory.list(limit=1_000, history=True) == before
    assert not page.store.holds()


@for_each("name, value", [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")])
def test_a_form_of_another_site_is_refused_even_with_the_token(page: Page, name: str, value: str) -> None:
    form = {"csrf": page.ui.access.csrf, "text": "Somebody else wrote this."}
    assert page.client.post(page.path("remember"), data=form, headers={name: value}).status_code == 403


def test_a_form_without_limits_is_cut_off(page: Page) -> None:
    answer = page.post("remember", text="x" * (9 << 20))
    assert answer.status_code == 413


def test_every_answer_has_the_strict_headers(page: Page) -> None:
    paths = ["/static/app.css", page.path("timeline"), page.path("item"), "/nothing/here/at/all", "/?token=x"]
    for path in paths:
        headers = page.client.get(path).headers
        assert headers["content-security-policy"] == CSP
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in CSP
    assert "unsafe" not in CSP
    assert page.get("timeline").headers["cache-control"] == "no-store"


def test_no_page_has_inline_scripts_or_styles(page: Page) -> None:
    id = page.memory.list(limit=1)[0].id
    for path in PAGES:
        answer = page.get(path, id=id, name="order-42", q="Ana", action="park", target="user", n="1")
        if "html" not in answer.headers["content-type"]:
            continue
        text = answer.text.replace("<script src=", "")
        assert "<script" not in text, path
        assert "<style" not in text, path
        assert " style=" not in text, path
        assert " onclick=" not in text, path


def test_static_files_cannot_be_left(page: Page) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/vendor/../../app.py"):
        assert page.client.get(path).status_code in (401, 404)


def test_libraries_are_as_they_were_published() -> None:
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    known = {name: digest for digest, name in (line.split() for line in lines)}
    files = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS", "README.md"}
    assert files == set(known)
    for name, digest in known.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    for library in ("htmx", "uplot", "d3"):
        assert "WITHOUT WARRANTY" in (text := (VENDOR / f"{library}.LICENSE").read_text()) or "AS IS" in text
