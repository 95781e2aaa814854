"""The page for people: all of a memory can be read on it, and nothing on it is live."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from export_kit import filled
from memory_kit import Open

from engrain import Memory
from engrain.core.formats.export_rows import EXPORTED_KINDS
from engrain.transfer import markdown
from engrain.transfer.export import iterate_exported


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    return open_memory(background=False, embedder=HashEmbedder())


def test_people_can_read_all_of_it(memory: Memory, clock: SetClock, tmp_path: Path) -> None:
    full = filled(memory, clock)
    full.remember("# Not a heading\n<script>x</script> ![p](http://t.example/x)", metadata={"of": {"a": 1}})
    path = tmp_path / "out.md"
    full.export(path, format="markdown")
    page = path.read_text()
    for text in ("Ana likes tea.", "Lima", "Ana is tall.", "Ana is small.", "My city is Cusco.", "It broke.", "1. test",
                 "deploy", "order", "shipped", "half", "Parked", "the document diary", "2020-02-02", '- k: ', "paid",
                 "user ana", "In short:", "result " * 1_999, "y" * 9_000):  # fmt: skip
        assert text in page, text
    assert "\n# Not" not in page
    assert "u000a" not in page
    assert "<script" not in page.replace("\\<script", "")
    assert "Nobody must know" not in page
    for internal in (full.list(limit=1)[0].id, "max_tokens", '"v":', "upto"):
        assert internal not in page, internal


@pytest.mark.parametrize("backslashes", range(5))
def test_no_stored_text_is_live_on_the_page(memory: Memory, tmp_path: Path, backslashes: int) -> None:
    path = tmp_path / "out.md"
    for mark in ("<img src=http://t.example/x>", "![p](http://t.example/x)", "[p](http://t.example/x)"):
        memory.remember("\\" * backslashes + mark)
    memory.export(path, format="markdown")
    for mark in re.finditer(r"(\\*)[<\[]", path.read_text()):
        # An odd number of backslashes takes the meaning from what follows.
        assert len(mark[1]) % 2 == 1


def test_the_page_keeps_what_scripts_and_pictures_are_written_with(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    texts = ("東京\u3000大阪", "می\u200cخواهم", "👩\u200d👩\u200d👧", "10\u202f000\u00a0€")
    memory.remember_many(list(texts))
    memory.remember("left \u202e right")
    memory.export(path, format="markdown")
    page = path.read_text()
    assert all(text in page for text in texts)
    assert "\u202e" not in page


def test_a_page_takes_no_time_for_each_pair_of_items(memory: Memory) -> None:
    memory.remember("Ana likes tea.")
    (row,) = iterate_exported(memory.store.services, memory.scope)
    items = [replace(row, key=(f"{number}",), values={**row.values, "id": f"{number}"}) for number in range(15_000)]
    began = time.thread_time()
    (known,) = markdown._PageWriter({kind: items if kind == "item" else [] for kind in EXPORTED_KINDS}).sections()
    assert known.count("> Ana likes tea.") == len(items)
    assert time.thread_time() - began < 4


def test_names_that_programs_use_are_told_in_words(memory: Memory, tmp_path: Path) -> None:
    memory.remember("Tea", slot="user.prefers.drink")
    memory.remember("Blue", slot="favourite_colour")
    memory.relations.add("Ana", "works_at", "Acme")
    memory.remember("She said works_at.")
    memory.start_session("monday")
    memory.add_message("user", "My city is Lima. I am a baker and I like tea.")
    memory.end_session()
    memory.export(tmp_path / "out.md", format="markdown")
    page = (tmp_path / "out.md").read_text()
    for text in ("about: prefers drink; since", "about: favourite colour; since", "> Ana works at Acme\n",
                 "> She said works_at.\n", "summary of the session monday; since"):  # fmt: skip
        assert text in page, text
    assert "session:" not in page
    assert "user." not in page.split("# What this memory holds")[1].replace("by the user.", "")
