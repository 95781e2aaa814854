"""Take the pictures of docs/how-to/look-into-a-memory.md: python tools/ui_pictures.py [FOLDER]

It fills a memory over the months of a year, serves its page, and looks at it with Chromium.
"""

from __future__ import annotations

import random
import shutil
import socket
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from playwright.sync_api import sync_playwright

from engrain import Memory, Scope, Source, StepAmbiguous, Store
from engrain.ui.app import build_app
from engrain.ui.page_request import Ui
from engrain.ui.serve import make_access

IMAGES = Path(__file__).parents[1] / "docs" / "images"
NOTES = """Ana prefers Python over JavaScript.
The release train leaves every Tuesday at 14:00.
Ana's cat is called Miso.
The staging database moved to port 6432.
Invoices above 5,000 need two signatures.
Ana reads her mail before nine and after six.
The warehouse in Lima closes on the last Friday of a month.
Carla owns the payment gateway.
The nightly import needs 120 s.
Ben signs off the budget.""".splitlines()
RELATIONS = """Ana|works at|Acme
Ben|manages|Ana
Ben|works at|Acme
Miso|belongs to|Ana
Acme|is based in|Quito
Carla|mentors|Ben
Carla|owns|payment gateway
payment gateway|runs on|Postgres
nightly import|writes to|Postgres
Acme|runs|nightly import""".splitlines()
TALK = (
    ("user", "I moved to Quito last week. From now on answer in Spanish."),
    ("assistant", "Claro, desde ahora en español. ¿Busco un vuelo a Lima?"),
    ("user", "Yes, please. Remember that I prefer aisle seats."),
    ("assistant", "LA1447 sale a las 08:35 y tiene asientos de pasillo."),
)


class Calendar:
    """A clock that goes from month to month."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=40)
        return self.now


def fill(memory: Memory, clock: Calendar) -> None:
    chance, end = random.Random(7), datetime.now(UTC)
    clock.now = end - timedelta(days=300)
    memory.remember("Ana lives in Lima.", slot="user.city")
    for day in range(300, 0, -1):
        clock.now = end - timedelta(days=day, hours=chance.random() * 9)
        for _ in range(chance.choice((0, 0, 1, 2, 3 + day % 7))):
            text = chance.choice(NOTES)
            memory.remember(f"{text[:-1]} (week {day // 7}).", importance=chance.random(), source=chance.choice(
                (None, None, "wiki/handbook.md", Source("https://status.example", "web"))))  # fmt: skip
    clock.now = end - timedelta(days=2)
    for text in NOTES:
        memory.remember(text, importance=round(chance.uniform(0.4, 0.95), 2))
    for line in RELATIONS:
        memory.relations.add(*line.split("|"))
    clock.now = end - timedelta(hours=5)
    memory.start_session("monday")
    for role, text in TALK:
        clock.now += timedelta(minutes=1)
        memory.add_message(role, text)
    memory.end_session()
    pin = next(item for item in memory.list(limit=400) if item.text == NOTES[0])
    memory.update(pin.id, pinned=True)
    clock.now = end - timedelta(minutes=20)
    run_tasks(memory, clock)


def run_tasks(memory: Memory, clock: Calendar) -> None:
    def take(seconds: float, value: Any = None) -> Any:
        clock.now += timedelta(seconds=seconds)
        return value

    def break_off() -> None:
        take(3)
        raise ConnectionError("the connection was lost")

    with suppress(StepAmbiguous), memory.task("refund-7", goal="Pay order 7 back to Ana") as run:
        run.step("find the order", take, 0.8, {"order": 7, "amount": 40})
        run.step("check the limit", take, 1.6, True)
        run.remember_step("note", "Order 7 is paid back on request of Ana.")
        run.effect("pay", break_off)


def take_pictures(address: str, owner: str, folder: Path) -> None:
    def open_page(view: Any, path: str) -> None:
        view.goto(f"{address.partition('/?')[0]}/{owner}/{path}")
        view.wait_for_load_state("networkidle")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            view = browser.new_context(viewport={"width": 1200, "height": 760}, color_scheme=theme).new_page()
            view.goto(address)
            open_page(view, "timeline")
            view.locator(".row-text", has_text="Remember that I prefer").first.click()
            view.locator("#peek .item").wait_for()
            view.evaluate("scrollTo(0, 0)")
            view.screenshot(path=folder / f"ui-timeline-{theme}.png")
            open_page(view, "ask?q=Which+seat+shall+I+book%3F&n=3")
            view.locator(".score summary").first.click()
            view.locator(".hit .row-text").first.click()
            view.locator("#peek .item").wait_for()
            view.screenshot(path=folder / f"ui-ask-{theme}.png")
            open_page(view, "relations?entity=Acme")
            view.wait_for_timeout(1500)
            view.screenshot(path=folder / f"ui-relations-{theme}.png")
            open_page(view, "task?name=refund-7")
            view.screenshot(path=folder / f"ui-task-{theme}.png")
            open_page(view, "privacy")
            view.get_by_text("Everything of ana").click()
            view.get_by_role("button", name="Show what would go").click()
            view.locator("input[name=typed]").fill("an")
            view.screenshot(path=folder / f"ui-privacy-{theme}.png")
        view = browser.new_context(viewport={"width": 400, "height": 760}, color_scheme="dark").new_page()
        view.goto(address)
        open_page(view, "session?name=monday")
        view.screenshot(path=folder / "ui-narrow.png")
        browser.close()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    clock = Calendar(datetime.now(UTC))
    with TemporaryDirectory() as place, Store(Path(place) / "agent.db", clock=clock, background=False) as store:
        fill(store.memory(user="ana"), clock)
        clock.now = datetime.now(UTC)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        ui = Ui(store, Scope(user="ana"), make_access("127.0.0.1", port), "agent.db")
        server = uvicorn.Server(uvicorn.Config(build_app(ui), log_level="error", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            take_pictures(f"http://127.0.0.1:{port}/?token={ui.access.token}", "user=ana", folder)
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    main()
