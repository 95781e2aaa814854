"""Text that recall rendered is not taken for the speaker's own words."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from examples import for_each
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.identity import Scope
from engrain.core.model.items import Item, Source
from engrain.core.model.recall import RECENT_HEADING, SESSION_HEADING, Hit, OutdatedText, Recall, Section
from engrain.core.model.sessions import SessionStart
from engrain.core.rules.message_filters import EARLIER_HEADING, blank_recalled, find_unrecalled_spans

NOW = datetime(2026, 11, 15, tzinfo=UTC)
ITEM = Item("a", "fact", 'I prefer "tea" (green) - always.', 0.5, NOW, NOW)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
NAMES = st.none() | TEXT


def hit(item: Item, **values: object) -> Hit:
    return replace(Hit(item, item.text, (0, len(item.text)), 1.0, 1.0), **values)  # type: ignore[arg-type]


RECALL = Recall(
    (
        hit(ITEM),
        hit(replace(ITEM, slot="user.drink", valid_to=NOW, speaker="Ana (work)", role="user")),
        hit(replace(ITEM, sources=(Source("notes (old).md", "document"),)), scope=Scope(user="Ben")),
        hit(ITEM, outdated=(OutdatedText('"coffee" :)', NOW, "(tea)"),)),
        hit(replace(ITEM, kind="summary", slot="session:x (y)", text='user: I like "tea".\nuser: Tea (hot) it is.')),
    )
)
BLOCK = str(RECALL)


def own(text: str) -> list[str]:
    return [text[start:end].strip() for start, end in find_unrecalled_spans(text)]


def test_a_message_without_recalled_lines_is_all_the_speakers_own() -> None:
    text = 'I read "Dune" (1965) - and my list:\n- "Emma"\n- tea (2026-11-15)\n## Plan\nGo.'
    assert find_unrecalled_spans(text) == [(0, len(text))]
    assert blank_recalled(text) == text


@for_each("margin", ["", "> ", ">> ", "    ", "\t", "| ", "* "])
def test_recalled_lines_are_cut_out_wherever_they_stand(margin: str) -> None:
    pasted = "\n".join(margin + line for line in BLOCK.splitlines())
    text = f"You said this:\n{pasted}\nBut I prefer juice."
    shown = blank_recalled(text)
    assert len(shown) == len(text)
    assert "tea" not in shown
    assert shown.rstrip().endswith("But I prefer juice.")
    assert shown.startswith("You said this:")


def test_a_line_inside_a_sentence_is_cut_out_alone() -> None:
    line = str(hit(replace(ITEM, speaker="Ana (work)")))
    text = f"Why do you say {line} when I prefer juice?"
    assert own(text) == ["Why do you say", "when I prefer juice?"]


def test_a_line_that_a_mail_program_has_broken_is_cut_out() -> None:
    assert (
        own('> - "I prefer tea\n> to coffee"\n> (2026-11-15, said by\n> Ana)\nI prefer juice.')[-1] == "I prefer juice."
    )


def test_free_lines_under_the_headings_of_a_session_are_cut_out() -> None:
    session = Section(SESSION_HEADING, ("Current Task: I prefer tea", "", "Recent Thoughts:", "  - I prefer tea"))
    recent = Section(RECENT_HEADING, ("I prefer tea: said before",))
    block = str(replace(RECALL, context=(session, recent)))
    assert own(f"{block}\n\nI prefer juice.")[-1] == "I prefer juice."
    assert "tea" not in blank_recalled(f"{block}\n\nI prefer juice.")


def test_the_summary_of_a_conversation_and_the_opening_of_a_session_are_cut_out() -> None:
    opening = SessionStart("monday", (ITEM,), replace(ITEM, kind="summary", slot="session:sunday"), (ITEM,))
    text = f"{EARLIER_HEADING}\n> user: I prefer tea\n> assistant: Noted.\n\n{opening}\n\nI prefer juice."
    assert "tea" not in blank_recalled(text)
    assert own(text)[-1] == "I prefer juice."


@given(TEXT, NAMES, NAMES, NAMES)
def test_whatever_an_item_says_its_line_is_cut_out(
    text: str, slot: str | None, speaker: str | None, name: str | None
) -> None:
    item = replace(ITEM, text=text, slot=slot, speaker=speaker, sources=(Source(name),))
    assert own(f"Before.\n{hit(item)}\nAfter.") == ["Before.", "After."]


@for_each("piece", ['- "', "- a: ", '- "a" ', '- "a" (2026-11-15 ', "## Current session\n", "\\", "(", "\n\n"])
def test_hostile_text_takes_no_time(piece: str) -> None:
    began = time.thread_time()
    blank_recalled((piece * 20_000)[:20_000])
    find_unrecalled_spans(f'- a: "{piece * 5_000}')
    assert time.thread_time() - began < 1.0
