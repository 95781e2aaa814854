"""Every page shows what the memory has, and every action does what it says."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from ui_kit import Page, furnish, leave_ambiguous, serve_page

from engrain import Receipt, Scope, Store
from engrain.retrieval.ranking import WEIGHTS
from engrain.ui.addresses import read_owner, write_owner
from engrain.ui.app import PAGES
from engrain.ui.pages.ask import PARTS
from engrain.ui.serve import choose_home
from engrain.ui.text import find_words, show_plain, show_text


def find_id(page: Page, words: str, kind: str = "fact") -> str:
    return next(item.id for item in page.memory.list({"kind": kind}, limit=1_000) if words in item.text)


@for_each("path, expected", [
    ("timeline", "Ana prefers Python"),
    ("ask?q=Python+or+JavaScript", "found by"),
    ("ask", "Ask a question"),
    ("slots", "Ana lives in Quito."),
    ("slots/history?name=user.city", "Ana lives in Lima."),
    ("relations", "works at"),
    ("sessions", "monday"),
    ("session?name=monday", "Aisle seats it is."),
    ("tasks", "refund-7"),
    ("task?name=refund-7", "nobody knows whether it happened"),
    ("task?name=order-42", "parcels"),
    ("repositories", "we use pnpm here"),
    ("privacy", "Export"),
    ("doctor", "Check this memory"),
    ("doctor/checks", "35 checks"),
    ("memories", "ben"),
])  # fmt: skip
def test_a_page_shows_what_the_memory_has(page: Page, path: str, expected: str) -> None:
    answer = page.client.get(page.path(path))
    assert answer.status_code == 200
    assert expected in answer.text


def test_every_page_of_an_empty_memory_says_what_to_do(empty_page: Page) -> None:
    expected = {
        "timeline": "engrain remember", "slots": "--slot", "relations": "engrain relate", "sessions": "engrain chat",
        "repositories": "engrain connect",
        "tasks": "memory.task", "ask": "Ask a question", "privacy": "The log is empty", "doctor": "Check this memory",
    }  # fmt: skip
    for path, words in expected.items():
        assert words in empty_page.get(path).text, path


def test_stored_markup_is_text_and_hidden_characters_are_seen(page: Page) -> None:
    text = page.get("timeline").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "\u202e" not in text
    assert "\u200b" not in text
    assert "\x07" not in text
    assert ">U+202E</span>" in text
    assert 'title="U+200B: zero width space"' in text


def test_hidden_characters_are_shown_and_scripts_that_need_joiners_are_left_alone() -> None:
    assert "U+E0041" in show_text("tag \U000e0041")
    assert "U+FE05" in show_text("a\ufe05")
    assert show_text("👩‍💻 ❤️ می‌خواهم") == "👩‍💻 ❤️ می‌خواهم"
    assert "U+200D" in show_text("pay\u200dpal")
    assert show_text("a\n\tb") == "a\n\tb"
    assert show_text("<b>", [(0, 2)]) == "<mark>&lt;b</mark>&gt;"
    assert show_plain("a\u202eb") == "a[U+202E]b"
    assert find_words("Tea and tea", "tea") == [(0, 3), (8, 11)]


@for_each("scope", [
    Scope(), Scope(user="ana"), Scope("acme", "bot", "ana"), Scope(user="a/b ~,=é"), Scope(user=""), Scope(tenant="t"),
])  # fmt: skip
def test_an_address_names_every_owner(scope: Scope) -> None:
    assert read_owner(write_owner(scope)) == scope


def test_the_page_opens_with_the_named_memory_or_the_largest(page: Page) -> None:
    assert choose_home(Scope(user="ben"), page.store) == Scope(user="ben")
    assert choose_home(Scope(), page.store) == Scope(user="ana")
    page.store.memory().remember("Nobody's note.")
    assert choose_home(Scope(), page.store) == Scope()
    assert page.client.get("/").headers["location"] == page.path("timeline")


def test_another_memory_of_the_store_has_its_own_address(page: Page) -> None:
    ben = Scope("acme/é", "travel", "ben")
    listed = page.fragment("memories", text="travel").text
    assert page.path("timeline", ben) in listed
    shown = page.client.get(page.path("timeline", ben)).text
    assert "Ben likes tea." in shown
    assert "Ana" not in shown


def test_filters_combine_and_the_words_are_found_in_any_case(page: Page) -> None:
    def shown(**query: object) -> str:
        return page.fragment("timeline/items", **query).text

    assert "<mark>python</mark>".lower() in shown(text="PYTHON").lower()
    assert "lives in Quito" not in shown(text="PYTHON")
    assert "Aisle seats it is." in shown(kind="message")
    assert "Ana prefers Python" not in shown(kind="message")
    assert "Aisle" in shown(session="monday", kind=["message", "fact"])
    assert "stood on a page" in shown(source="https://page.example")
    assert "lives in Lima" in shown(as_of="2025-12-24T12:00")
    assert "lives in Quito" not in shown(as_of="2025-12-24T12:00")
    assert "lives in Lima" in shown(history="1")
    assert "Nothing matches" in shown(text="no such words")


def test_a_thousand_items_come_page_by_page_each_once(empty_page: Page) -> None:
    empty_page.memory.remember_many([f"Note number {n}." for n in range(1_000)])
    seen: list[str] = []
    path: str | None = empty_page.path("timeline/items")
    while path:
        text = empty_page.client.get(path, headers={"HX-Request": "true"}).text
        seen += re.findall(r"Note number (\d+)\.", text)
        found = re.search(r'class="more" hx-get="([^"]+)"', text)
        path = found[1].replace("&amp;", "&") if found else None
    assert seen == [str(n) for n in reversed(range(1_000))]


def test_the_overview_counts_kinds_and_times_and_follows_changes(page: Page) -> None:
    before = page.get("timeline/overview").json()
    assert before["kinds"]["message"] == 2
    assert sum(before["counts"]) == sum(before["kinds"].values()) + 1  # Lima, which held once
    assert before["bars"][0] <= datetime(2025, 3, 1, tzinfo=UTC).timestamp()
    assert before["sessions"] == ["monday"]
    page.memory.remember("One more.")
    assert page.get("timeline/overview").json()["kinds"]["fact"] == before["kinds"]["fact"] + 1


def test_an_answer_shows_scores_what_was_left_out_and_the_block(page: Page) -> None:
    found = page.memory.recall("Ana lives in Quito", n=1)
    text = page.fragment("ask", q="Ana lives in Quito", n="1").text
    assert f"{found.hits[0].score:.2f}" in text
    assert "Left out" in text
    assert str(found).splitlines()[0] in text
    assert "Current task: Ana lives in Quito" in page.fragment("ask/prompt", q="Ana lives in Quito").text


def test_every_part_of_a_score_is_explained() -> None:
    assert set(WEIGHTS) <= set(PARTS)


def test_an_item_shows_its_origin_versions_and_derivatives(page: Page) -> None:
    message = find_id(page, "Remember that I prefer", "message")
    text = page.get("item", id=message).text
    assert "Made from it" in text
    fact = page.memory.explain(message).cited_by[0]
    assert "<mark>" in page.get("item", id=fact.id).text
    city = page.get("item", id=find_id(page, "lives in Quito")).text
    assert "Versions" in city
    assert "Ana lives in Lima." in city
    assert page.get("item", id="nothing").status_code == 404


def test_an_item_is_pinned_edited_and_corrected(page: Page) -> None:
    id = find_id(page, "Python")
    page.post("item/pin", id=id, pinned="1")
    assert page.memory.get(id).pinned  # type: ignore[union-attr]
    page.post("item/edit", id=id, importance="0.25", metadata='{"team": "blue"}')
    item = page.memory.get(id)
    assert item is not None
    assert (item.importance, item.metadata) == (0.25, {"team": "blue"})
    answer = page.post("item/correct", id=id, text="Ana prefers Rust.")
    assert answer.status_code == 303
    assert "Ana prefers Rust." in page.client.get(answer.headers["location"]).text
    assert page.memory.get(id).retracted_at  # type: ignore[union-attr]


BAD_METADATA = ("[1]", "{", '{"engrain": 1}')


@for_each("form", [
    {"importance": "2"}, {"importance": "x"}, *({"importance": "0.5", "metadata": text} for text in BAD_METADATA),
])  # fmt: skip
def test_a_bad_edit_is_explained_and_changes_nothing(page: Page, form: dict[str, str]) -> None:
    id = find_id(page, "Python")
    before = page.memory.get(id)
    answer = page.post("item/edit", id=id, **form)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert page.memory.get(id) == before


def test_forgetting_says_what_goes_along_and_does_it(page: Page) -> None:
    message = find_id(page, "Remember that I prefer", "message")
    derived = page.memory.explain(message).cited_by
    dialog = page.fragment("item/forget", id=message).text
    assert f"{len(derived)} item" in dialog
    assert all(item.text[:40] in dialog for item in derived if item.kind == "fact")
    page.post("item/forget", id=message)
    assert page.memory.get(message) is None
    assert all(page.memory.get(item.id) is None for item in derived)


def test_remembering_opens_the_new_item(page: Page) -> None:
    answer = page.post("remember", text="Tea at four.\r\nEvery day.", slot="user.tea", importance="0.9")
    item = page.memory.slots.get("user.tea")
    assert item is not None
    assert item.text == "Tea at four.\nEvery day."
    assert answer.headers["location"].endswith(item.id)


def test_an_ambiguous_step_is_resolved_and_a_task_parked_resumed_signalled_cancelled(page: Page) -> None:
    page.post("task/act", name="refund-7", action="resolve", step="pay", verdict="done", result='{"id": 3}')
    steps = page.memory.tasks.timeline("refund-7").steps
    assert steps[0].status == "done"
    page.post("task/act", name="refund-7", action="park", why="lunch")
    assert page.memory.tasks.get("refund-7").status == "parked"  # type: ignore[union-attr]
    page.post("task/act", name="refund-7", action="resume")
    assert page.memory.tasks.get("refund-7").status == "waiting"  # type: ignore[union-attr]
    assert page.post("task/act", name="refund-7", action="signal", event="go", payload='"now"').status_code == 303
    assert page.post("task/act", name="refund-7", action="signal", event="go", payload="{").status_code == 422
    page.post("task/act", name="refund-7", action="cancel")
    assert page.memory.tasks.get("refund-7").status == "cancelled"  # type: ignore[union-attr]
    assert page.fragment("task/act", name="refund-7", action="dance").status_code == 422


def test_a_user_is_erased_only_with_the_typed_name_and_the_receipt_holds(page: Page) -> None:
    preview = page.fragment("privacy/preview", target="user").text
    assert "Would erase" in preview
    assert page.post("privacy/erase", target="user", typed="Ana").status_code == 422
    assert page.memory.list(limit=1)
    done = page.post("privacy/erase", target="user", typed="ana")
    assert "Download the receipt" in done.text
    assert not page.memory.list(limit=1, history=True)
    entry = page.store.audit()[-1]
    receipt = page.get("privacy/receipt", n=entry.n)
    assert "attachment" in receipt.headers["content-disposition"]
    assert page.store.verify_erasure(Receipt.read(receipt.text))
    assert "good" in page.post("privacy/verify", n=str(entry.n)).text
    assert "good" in page.post("privacy/verify").text
    assert page.get("privacy/receipt", n=999).status_code == 404


def test_a_session_and_a_source_are_erased_alone(page: Page) -> None:
    page.post("privacy/erase", target="session", name="monday", typed="monday")
    page.post("privacy/erase", target="source", name="https://page.example", typed="https://page.example")
    left = " ".join(item.text for item in page.memory.list(limit=1_000, history=True))
    assert "Aisle" not in left
    assert "stood on a page" not in left
    assert "Ana prefers Python" in left


def test_a_hold_keeps_data_until_it_is_released(page: Page) -> None:
    page.post("privacy/hold", user="ana", reason="case-7")
    assert "case-7" in page.get("privacy").text
    assert page.post("item/forget", id=find_id(page, "Python")).status_code == 409
    page.post("privacy/release", user="ana", reason="case-7")
    assert not page.store.holds()
    assert page.post("privacy/release", user="ana", reason="case-7").status_code == 404


def test_the_download_is_an_export(page: Page) -> None:
    answer = page.get("privacy/export")
    assert 'filename="engrain-user-ana.jsonl"' in answer.headers["content-disposition"]
    assert any("Ana prefers Python" in line for line in answer.text.splitlines() if json.loads(line))


def test_maintenance_is_shown_before_it_is_done(page: Page) -> None:
    assert "would do this" in page.post("doctor/maintain", dry_run="1").text
    assert "is done" in page.post("doctor/maintain").text


def test_a_message_of_an_action_is_shown_once(page: Page) -> None:
    page.client.get(page.post("item/pin", id=find_id(page, "Python"), pinned="1").headers["location"])
    page.post("item/pin", id=find_id(page, "Python"), pinned="0")
    assert "Unpinned." in page.get("timeline").text
    assert "Unpinned." not in page.get("timeline").text


@for_each("query", [{"as_of": "x"}, {"n": "x", "q": "a"}, {"as_of": "99999-01-01"}])
def test_a_bad_value_in_an_address_is_explained(page: Page, query: dict[str, str]) -> None:
    answer = page.get("ask", **query)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text


def test_every_page_answers_without_values(page: Page) -> None:
    for path in PAGES:
        assert page.get(path).status_code in (200, 404, 422), path


HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7*7}}"


def test_no_name_of_anything_is_markup(empty_page: Page) -> None:
    memory = empty_page.store.memory(user=HOSTILE, agent=HOSTILE, tenant=HOSTILE)
    memory.remember(HOSTILE, slot="user.note", source=HOSTILE, metadata={HOSTILE: HOSTILE})
    memory.relations.add(HOSTILE, HOSTILE, HOSTILE)
    memory.start_session(HOSTILE)
    memory.add_message("user", HOSTILE, speaker=HOSTILE)
    memory.end_session()
    leave_ambiguous(memory, HOSTILE)
    with memory.task("t" + HOSTILE, goal=HOSTILE) as run:
        run.step(HOSTILE, lambda: {HOSTILE: HOSTILE})
        run.outcome = HOSTILE
    empty_page.store.hold(HOSTILE, tenant=HOSTILE, reason="case-7")
    id = memory.list({"kind": "fact"}, limit=1)[0].id
    for path in PAGES:
        for name in (HOSTILE, "t" + HOSTILE):
            query = {"id": id, "name": name, "q": HOSTILE, "text": HOSTILE, "entity": HOSTILE, "prefix": HOSTILE,
                     "source": HOSTILE, "action": "resolve", "step": HOSTILE, "target": "session"}  # fmt: skip
            if path.startswith("timeline"):
                query["kind"] = "fact"
            answer = empty_page.client.get(empty_page.path(path, memory.scope), params=query)
            assert answer.status_code in (200, 404, 409, 422), (path, answer.text)
            if "html" in answer.headers["content-type"]:
                assert "<img" not in answer.text, path


def test_a_memory_that_a_hold_hides_says_so(page: Page) -> None:
    page.post("privacy/hold", user="ana", reason="case-7")
    assert page.post("privacy/erase", target="user", typed="ana").status_code == 409
    text = page.get("timeline").text
    assert "nothing of this memory is shown until the hold is released" in text
    assert "Ana prefers Python" not in text
    page.post("privacy/release", user="ana", reason="case-7")
    assert "Ana prefers Python" in page.get("timeline").text


def test_a_store_that_can_only_be_read_is_shown_without_actions(tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder(), background=False) as store:
        furnish(store)
    read = Store(tmp_path / "agent.db", embedder=HashEmbedder(), background=False, read_only=True)
    with read as store, serve_page(store, Scope(user="ana"), read_only=True) as page:
        id = page.memory.list(limit=1)[0].id
        for path in ("timeline", f"item?id={id}", "ask?q=Ana", "task?name=refund-7", "privacy", "doctor"):
            answer = page.client.get(page.path(path))
            assert answer.status_code == 200, path
            assert "can only be read" in answer.text
            for word in (">Forget<", ">Pin<", ">Resolve<", "Erase for good", ">Hold<"):
                assert word not in answer.text, path
        assert page.post("item/forget", id=id).status_code == 409
        assert page.memory.get(id)


def test_after_forgetting_the_timeline_is_as_the_person_left_it(page: Page) -> None:
    shown = page.address + page.path("timeline") + "?text=Python&kind=fact"
    headers = {"HX-Request": "true", "HX-Current-URL": shown}
    form = {"csrf": page.ui.access.csrf, "id": find_id(page, "Python")}
    answer = page.client.post(page.path("item/forget"), data=form, headers=headers)
    assert answer.headers["hx-redirect"] == page.path("timeline") + "?text=Python&kind=fact"
    form["id"] = find_id(page, "Quito")
    elsewhere = {**headers, "HX-Current-URL": "https://evil.example/timeline?x=1"}
    answer = page.client.post(page.path("item/forget"), data=form, headers=elsewhere)
    assert answer.headers["hx-redirect"] == page.path("timeline")
