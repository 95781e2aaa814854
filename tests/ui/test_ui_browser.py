"""Every page in Chromium: no error, the policy in force, and what a person does with mouse and keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from ui_kit import Page

from engrain import Receipt

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: make test-ui installs it")

PAGES = (
    "timeline", "ask", "ask?q=Where+does+Ana+live", "slots", "relations", "sessions", "session?name=monday", "tasks",
    "task?name=refund-7", "task?name=order-42", "privacy", "doctor",
)  # fmt: skip


# Fields, buttons and links that a screen reader cannot name.
UNNAMED = """() => [...document.querySelectorAll("input:not([type=hidden]), textarea, select, button, a")]
    .filter((one) => one.offsetParent && !(one.labels?.[0]?.textContent.trim()))
    .filter((one) => !one.ariaLabel && !one.title && !one.textContent.trim())
    .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    # A container's root has no sandbox of its own.
    arguments = ["--disable-gpu", "--disable-software-rasterizer", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=180_000)
        yield opened
        opened.close()


# Chromium leaves out the fade between two pages when the next one is there before it.
SLOW_MACHINE = "Transition was aborted because of invalid state"


class Tab:
    """A tab that is signed in, and the errors of its console."""

    def __init__(self, browser: Any, page: Page, **options: Any) -> None:
        self.page = page
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.view = self.context.new_page()
        self.view.set_default_timeout(120_000)
        self.errors: list[str] = []
        self.view.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.view.on("pageerror", lambda error: SLOW_MACHINE not in str(error) and self.errors.append(str(error)))
        self.view.goto(page.entrance)

    def open(self, page: str) -> Any:
        self.view.goto(self.page.address + self.page.path(page))
        self.view.wait_for_load_state("networkidle")
        return self.view

    def close(self) -> None:
        self.context.close()
        assert self.errors == []


@pytest.fixture
def tab(browser: Any, page: Page) -> Iterator[Tab]:
    opened = Tab(browser, page)
    yield opened
    opened.close()


def measure_width(view: Any, wanted: int) -> int:
    """Return how wide the page is. A chart is drawn anew a moment after the window changes: wait for that."""
    for _ in range(100):
        width: int = view.evaluate("document.documentElement.scrollWidth")
        if width <= wanted:
            break
        view.wait_for_timeout(50)
    return width


def test_every_page_fits_and_has_no_error(tab: Tab) -> None:
    memory = tab.page.memory
    memory.forget(memory.remember("A note that is soon forgotten."))  # so that the audit log has an entry
    item = memory.list(limit=1)[0].id
    for path in (*PAGES, f"item?id={item}"):
        view = tab.open(path)
        for width, theme in ((1280, "dark"), (400, "light")):
            view.set_viewport_size({"width": width, "height": 800})
            view.emulate_media(color_scheme=theme)
            assert view.locator("h1, .item-text").first.is_visible(), path
            assert measure_width(view, width) <= width, path
            assert view.evaluate(UNNAMED) == [], path


def test_nothing_is_cut_off_and_lines_stay_lines(tab: Tab) -> None:
    memory = tab.page.memory
    memory.start_session("monday")
    memory.add_message("user", "The wedding is in Lisbon. The green paint needs 2 coats.")
    memory.end_session()
    summary = tab.open("sessions").locator(".session-summary").first
    assert len(summary.inner_text().splitlines()) >= 2
    shown = tab.open("relations?as_of=2001-01-01T00:00").locator("#relations .empty").bounding_box()
    main = tab.view.locator("main").bounding_box()
    assert abs(shown["x"] + shown["width"] / 2 - main["x"] - main["width"] / 2) < 40


def test_the_address_has_no_token_and_the_policy_stops_injected_code(tab: Tab) -> None:
    view = tab.open("timeline")
    assert "token" not in view.url
    assert "alert('stored')" in view.locator("#items").inner_text()
    stopped = view.evaluate("""() => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        setTimeout(() => done("nothing was stopped"), 60000);
    })""")
    assert stopped == "script-src-elem"
    assert view.evaluate("window.ran") is None
    tab.errors.clear()  # the browser reports the stopped script


def test_an_item_is_forgotten_by_clicking(tab: Tab) -> None:
    view = tab.open("timeline")
    view.get_by_text("Ana prefers Python over JavaScript.").click()
    view.locator("#peek").get_by_role("button", name="Forget").click()
    dialog = view.locator("#dialog")
    dialog.get_by_text("It goes from every file of the store").wait_for()
    dialog.get_by_role("button", name="Forget").click()
    view.get_by_text("Forgotten.").wait_for()
    assert not view.locator("#items").get_by_text("Ana prefers Python over JavaScript.").count()
    assert not [item for item in tab.page.memory.list(limit=1_000) if "JavaScript" in item.text]


@pytest.mark.slow
def test_keeping_an_item_changes_nothing(tab: Tab) -> None:
    before = tab.page.memory.list(limit=1_000)
    view = tab.open("timeline")
    view.get_by_text("Ana prefers Python over JavaScript.").click()
    view.locator("#peek").get_by_role("button", name="Forget").click()
    view.locator("#dialog").get_by_role("button", name="Keep it").click()
    view.locator("#dialog").wait_for(state="hidden")
    assert tab.page.memory.list(limit=1_000) == before


def test_a_user_is_erased_by_clicking_and_the_receipt_is_downloaded(tab: Tab) -> None:
    view = tab.open("privacy")
    view.get_by_text("Everything of ana").click()
    view.get_by_role("button", name="Show what would go").click()
    view.get_by_text("Would erase:").wait_for()
    button = view.get_by_role("button", name="Erase for good")
    assert button.is_disabled()
    typed = view.locator("input[name=typed]")
    typed.fill("Ana")
    assert button.is_disabled()
    typed.fill("ana")
    button.click()
    with view.expect_download() as waiting:
        view.get_by_role("link", name="Download the receipt").click()
    receipt = Receipt.read(waiting.value.path().read_text())
    assert tab.page.store.verify_erasure(receipt)
    view.get_by_role("button", name="Verify again").click()
    view.get_by_text("No row is left from before the erasure.").wait_for()
    tab.open("timeline").get_by_text("Nothing is remembered here yet").wait_for()


def test_an_item_is_pinned_and_edited_beside_the_list(tab: Tab) -> None:
    view = tab.open("timeline")
    view.get_by_text("Ana prefers Python over JavaScript.").click()
    peek = view.locator("#peek")
    peek.get_by_role("button", name="Pin").click()
    peek.get_by_role("button", name="Pinned").wait_for()
    peek.get_by_role("button", name="Edit").click()
    dialog = view.locator("#dialog")
    dialog.locator("textarea").fill("{")
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_text("the metadata is not JSON").wait_for()
    tab.errors.clear()  # the browser reports the refused form
    dialog.locator("textarea").fill('{"team": "blue"}')
    dialog.get_by_role("button", name="Save").click()
    peek.get_by_text("blue").wait_for()
    assert not dialog.is_visible()
    assert view.locator(".row .pin").count() == 1  # the row in the list follows
    item = next(item for item in tab.page.memory.list({"pinned": True}))
    assert item.metadata == {"team": "blue"}


def test_an_ambiguous_effect_is_resolved_by_clicking(tab: Tab) -> None:
    view = tab.open("task?name=refund-7")
    view.get_by_role("button", name="Resolve").click()
    view.locator("#dialog").get_by_text("It happened it is not done again").click()
    view.locator("#dialog").get_by_role("button", name="Resolve").click()
    view.get_by_text("Resolved as done.").wait_for()
    assert tab.page.memory.tasks.timeline("refund-7").steps[0].status == "done"


def test_the_keys(tab: Tab) -> None:
    view = tab.open("timeline")
    press, focused = view.keyboard.press, lambda: view.evaluate("document.activeElement.id")
    press("/")
    assert focused() == "filter-text"
    press("Escape")
    assert focused() != "filter-text"
    current = view.locator(".row.current .row-text")
    press("j")
    first = current.inner_text()
    press("j")
    assert current.inner_text() != first
    press("k")
    assert current.inner_text() == first
    press("Enter")
    view.locator("#peek .item").wait_for()
    press("p")
    view.locator("#peek").get_by_role("button", name="Pinned").wait_for()
    press("f")
    view.get_by_text("Forget this for good?").wait_for()
    press("Escape")
    press("?")
    assert view.locator("#help").is_visible()
    press("Escape")
    assert not view.locator("#help").is_visible()
    press("n")
    view.locator("#dialog textarea").wait_for()
    press("Escape")
    press("g")
    press("m")
    view.get_by_text("Memories of this store").wait_for()
    press("Escape")
    for key, title in (("s", "Slots"), ("r", "Relations"), ("a", "Ask")):
        press("g")
        press(key)
        view.get_by_role("heading", name=title, exact=True).wait_for()
        view.wait_for_load_state()  # with the scripts
        if key == "a":
            press("Escape")  # the question has the focus


@pytest.mark.slow
def test_filters_and_the_slider_show_the_memory_as_it_was(tab: Tab) -> None:
    view = tab.open("timeline")
    view.locator("#filter-text").fill("LIVES")
    view.get_by_text("Ana lives in Quito.").wait_for()
    view.locator(".row", has_text="Python").wait_for(state="detached")
    assert "text=LIVES" in view.url
    slider = view.locator("#as-of-slider")
    slider.focus()
    slider.press("Home")
    view.locator(".row", has_text="Quito").first.wait_for(state="detached")
    assert view.locator("#as-of-label").inner_text() != "now"
    view.get_by_role("button", name="Back to now").click()
    view.get_by_text("Ana lives in Quito.").wait_for()
    assert view.locator("#as-of-label").inner_text() == "now"


@pytest.mark.slow
def test_many_items_come_while_scrolling_and_nothing_jumps(tab: Tab) -> None:
    tab.page.memory.remember_many([f"Note number {n}." for n in range(400)])
    view = tab.view
    view.add_init_script("""window.shift = 0; new PerformanceObserver((list) => {
        for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
    }).observe({ type: "layout-shift", buffered: true });""")
    tab.open("timeline")
    assert view.evaluate("window.shift") < 0.02
    for _ in range(40):
        if view.locator(".row").count() >= 400:
            break
        view.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        view.wait_for_timeout(100)
    assert view.locator(".row", has_text="Note number 0.").count() == 1
    assert view.locator(".day:not(.again)").count() == 1


def test_what_an_agent_writes_meanwhile_is_announced(tab: Tab) -> None:
    view = tab.open("timeline?kind=fact")
    tab.page.memory.remember("Written by an agent.")
    view.get_by_text("There is something new: show it").click()
    view.locator(".row", has_text="Written by an agent.").wait_for()
    assert "kind=fact" in view.url


@pytest.mark.slow
def test_the_graph_shows_relations_and_a_node_filters_the_table(tab: Tab) -> None:
    view = tab.open("relations")
    view.locator(".node").first.wait_for()
    assert view.locator(".node").count() == 3
    assert view.locator(".link").count() == 2
    rows = view.locator("#relations tbody tr")
    assert rows.count() == 2
    view.locator(".node", has_text="Quito").locator("circle").click()
    view.locator("#relations tr", has_text="works at").wait_for(state="detached")
    assert rows.count() == 1
    assert "entity=Quito" in view.url


@pytest.mark.slow
def test_another_memory_is_found_and_opened(tab: Tab) -> None:
    view = tab.open("timeline")
    view.locator(".switcher").click()
    view.get_by_placeholder("Find a user, agent or tenant").fill("trav")
    view.locator("#memory-list a", has_text="ana").first.wait_for(state="detached")
    view.locator("#memory-list a", has_text="ben").click()
    view.get_by_text("Ben likes tea.").wait_for()


@pytest.mark.slow
def test_the_theme_is_switched_and_stays(tab: Tab) -> None:
    def ground() -> str:
        return str(tab.view.evaluate("getComputedStyle(document.body).backgroundColor"))

    view = tab.open("timeline")
    light = ground()
    view.get_by_role("button", name="Switch between dark and light").click()
    dark = ground()
    assert dark != light
    tab.open("slots")
    assert ground() == dark


@pytest.mark.slow
def test_the_menu_opens_on_a_narrow_screen(browser: Any, page: Page) -> None:
    tab = Tab(browser, page, viewport={"width": 400, "height": 800}, has_touch=True)
    view = tab.open("timeline")
    assert not view.get_by_role("link", name="Privacy").is_visible()
    view.get_by_role("button", name="Menu").click()
    view.get_by_role("link", name="Privacy").click()
    view.get_by_role("heading", name="Privacy", exact=True).wait_for()
    assert not view.locator("#side").is_visible()
    tab.close()


@pytest.mark.slow
def test_the_checks_of_the_doctor_run_by_a_click(tab: Tab) -> None:
    view = tab.open("doctor")
    view.get_by_role("button", name="Check this memory").click()
    view.get_by_text("35 checks:").wait_for()
    assert view.locator(".check-row").count() == 35


@pytest.mark.slow
def test_a_question_is_answered_without_leaving_the_page(tab: Tab) -> None:
    view = tab.open("ask")
    view.locator(".ask input[name=q]").fill("Ana prefers Python")
    view.locator(".ask").get_by_role("button", name="Ask").click()
    view.locator(".hit").first.wait_for()
    view.locator(".score summary").first.click()
    assert view.get_by_text("orders the hits of this question").first.is_visible()
    view.get_by_role("button", name="Whole prompt").click()
    view.locator("#block", has_text="Current task: Ana prefers Python").wait_for()
    assert "q=Ana" in view.url
