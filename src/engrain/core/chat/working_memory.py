"""Render working memory as text for a prompt, within a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.recall_block import escape_text
from engrain.core.model.working import Buffer, BufferEntry, Frame
from engrain.core.text.invisible import escape_invisible
from engrain.core.text.summarize import DigestLine, choose_lines
from engrain.core.tokens import ELLIPSIS, CountTokens, clip_text

FRAME_DIVISOR = 5  # the frame has at most a fifth of the text, if there are items to show as well

MAX_TASK_CHARACTERS = 1_000
MAX_SUBGOAL_CHARACTERS = 200
MAX_RESULT_CHARACTERS = 200
MAX_THOUGHT_CHARACTERS = 500
MAX_NAME_CHARACTERS = 80
# The newest results and thoughts and the innermost subgoals are shown.
MAX_SUBGOALS, MAX_RESULTS, MAX_THOUGHTS = 10, 20, 5
_HEADINGS = "Earlier:\n\n\nLatest (1,000 older ones not shown):\n"


def render_context(frame: Frame, buffer: Buffer, limit: int) -> str:
    """Render the frame, the summary and the newest items. The oldest go first if they do not fit."""
    count = buffer.budget.count
    frame_part = render_frame(frame, limit // FRAME_DIVISOR if buffer.items or buffer.lines else limit, count)
    buffer_part = render_buffer(buffer, limit - count(frame_part + "\n\n") if frame_part else limit)
    both = "\n\n".join(filter(None, (frame_part, buffer_part)))
    return both if count(both) <= limit else clip_text(both, limit, count)


def render_frame(frame: Frame, limit: int, count: CountTokens) -> str:
    subgoals = [_shorten(goal, MAX_SUBGOAL_CHARACTERS) for goal in frame.subgoals[-MAX_SUBGOALS:]]
    results = [
        f"  {_shorten(name, MAX_NAME_CHARACTERS)}: {_shorten(text, MAX_RESULT_CHARACTERS)}"
        for name, text in list(frame.results.items())[-MAX_RESULTS:]
    ]
    thoughts = [f"  - {_shorten(thought, MAX_THOUGHT_CHARACTERS)}" for thought in frame.scratchpad[-MAX_THOUGHTS:]]
    while True:
        text = _join_frame(frame, subgoals, results, thoughts)
        if count(text) <= limit:
            return text
        least_needed = results or thoughts or subgoals
        if not least_needed:
            return clip_text(text, limit, count)
        del least_needed[0]


def render_buffer(buffer: Buffer, limit: int) -> str:
    """Render the summary and the newest items. All of it is quoted: a tool's words must not pass for this text."""
    count = buffer.budget.count
    items: list[str] = []
    room = limit - count(_HEADINGS)
    for entry in reversed(buffer.items):
        item = _render_item(entry, escape_text(entry.text))
        if not items and count(item) > room:
            item = _render_item(entry, clip_text(escape_text(entry.text), room - count(_render_item(entry, "")), count))
        room -= count(item + "\n")
        if room < 0:
            break
        items.insert(0, item)
    quoted = [replace(line, tokens=count(_quote_line(line) + "\n")) for line in buffer.lines]
    earlier = choose_lines(quoted, room, count)
    while earlier or items:
        text = _join_buffer(earlier, items, len(buffer.items) - len(items))
        if count(text) <= limit:
            return text
        # Parts may count more together than apart.
        del (earlier or items)[0]
    return ""


def _join_frame(frame: Frame, subgoals: list[str], results: list[str], thoughts: list[str]) -> str:
    lines = [f"Current Task: {_shorten(frame.task, MAX_TASK_CHARACTERS)}"] if frame.task else []
    lines += [f"Current Goal: {_shorten(frame.goal, MAX_TASK_CHARACTERS)}"] if frame.goal else []
    lines += [f"Subgoals: {' > '.join(subgoals)}"] if subgoals else []
    if results:
        older = len(frame.results) - len(results)
        lines += [f"\nIntermediate Results{f' ({older} older ones not shown)' if older else ''}:", *results]
    if thoughts:
        lines += ["\nRecent Thoughts:", *thoughts]
    return "\n".join(lines).strip()


def _join_buffer(earlier: Sequence[DigestLine], items: Sequence[str], older: int) -> str:
    blocks = ["\n".join(["Earlier:", *map(_quote_line, earlier)])] if earlier else []
    if items:
        blocks.append("\n".join([f"Latest{f' ({older} older ones not shown)' if older else ''}:", *items]))
    return "\n\n".join(blocks)


def _render_item(entry: BufferEntry, text: str) -> str:
    label = ", ".join(filter(None, (entry.speaker, entry.kind)))
    return f'- {_shorten(label, MAX_NAME_CHARACTERS)}: "{text}"'


def _quote_line(line: DigestLine) -> str:
    return f'- "{escape_text(line.text)}"'


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text[: 2 * limit].split())
    return escape_invisible(line if len(line) <= limit and len(text) <= 2 * limit else line[: limit - 1] + ELLIPSIS)
