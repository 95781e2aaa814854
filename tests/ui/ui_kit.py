"""The page of a real store, served on a free port, and a client that is signed in."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import uvicorn

from engrain import Memory, Scope, Source, StepAmbiguous, Store
from engrain.ui.addresses import write_owner
from engrain.ui.app import build_app
from engrain.ui.page_request import Ui
from engrain.ui.serve import make_access


@dataclass
class Page:
    """A served page: its store, its address, and a client whose cookie is set."""

    store: Store
    ui: Ui
    address: str
    client: httpx.Client
    scope: Scope

    @property
    def memory(self) -> Memory:
        return self.store.memory(user=self.scope.user, agent=self.scope.agent, tenant=self.scope.tenant)

    @property
    def entrance(self) -> str:
        return f"{self.address}/?token={self.ui.access.token}"

    def path(self, page: str, scope: Scope | None = None) -> str:
        return f"/{write_owner(scope or self.scope)}/{page}"

    def get(self, page: str, **query: Any) -> httpx.Response:
        return self.client.get(self.path(page), params=query)

    def fragment(self, page: str, **query: Any) -> httpx.Response:
        return self.client.get(self.path(page), params=query, headers={"HX-Request": "true"})

    def post(self, page: str, **form: str) -> httpx.Response:
        return self.client.post(self.path(page), data={"csrf": self.ui.access.csrf, **form})


def furnish(store: Store) -> None:
    """Something for every page."""
    coding = store.memory(user="ana", agent="github.com/ana/app")
    coding.remember("we use pnpm here", metadata={"coding": "rule", "client": "claude"})
    ana = store.memory(user="ana")
    ana.remember("Ana prefers Python over JavaScript.", importance=0.8, metadata={"project": "apollo"})
    ana.remember("<script>alert('stored')</script> stood on a page.", source=Source("https://page.example", "web"))
    ana.remember("turned \u202e text, zero\u200bwidth and a \x07 bell")
    for city, day in (("Lima", "2025-03-01"), ("Quito", "2026-06-01")):
        ana.remember(f"Ana lives in {city}.", slot="user.city", occurred_at=day)
    ana.relations.add("Ana", "works at", "Acme")
    ana.relations.add("Acme", "is based in", "Quito")
    ana.start_session("monday")
    ana.add_message("user", "Remember that I prefer aisle seats.")
    ana.add_message("assistant", "Aisle seats it is.")
    ana.end_session()
    with ana.task("order-42", goal="ship it") as run:
        run.step("plan", lambda: {"parcels": 2})
    leave_ambiguous(ana, "refund-7")
    store.memory(user="ben", agent="travel", tenant="acme/é").remember("Ben likes tea.")


def leave_ambiguous(memory: Memory, task: str) -> None:
    def fail() -> None:
        raise SystemError("connection reset")

    with pytest.raises(StepAmbiguous), memory.task(task, goal="pay it back") as run:
        run.effect("pay", fail)


@contextmanager
def serve_page(store: Store, scope: Scope, **options: Any) -> Iterator[Page]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # before the server runs: the client may be quicker
    port = listener.getsockname()[1]
    ui = Ui(store, scope, make_access("127.0.0.1", port), "agent.db", **options)
    server = uvicorn.Server(uvicorn.Config(build_app(ui), log_level="error", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    address = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=address, timeout=120) as client:
            page = Page(store, ui, address, client, scope)
            client.get(page.entrance)
            yield page
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
