"""Working memory as text for a prompt, within a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.model.recall import escape_text
from engrain.core.model.working import Buffer, BufferEntry, Frame
from engrain.core.text.summarize import DigestLine, choose_lines
from engrain.core.tokens import ELLIPSIS, CountTokens, clip_text

FRAME_SHARE = 5  # the frame has at most a fifth of the text, if there are items to show as well

# How many characters are shown of each, and how many of them: the newest, or the innermost.
TASK, SUBGOAL, RESULT, THOUGHT, NAME = 1_000, 200, 200, 500, 80
SUBGOALS, RESULTS, THOUGHTS = 10, 20, 5
_HEADINGS = "Earlier:\n\n\nLatest (1,000 older ones not shown):\n"


def render_context(frame: Frame, buffer: Buffer, limit: int) -> str:
    """The frame, what the summary tells, the newest items. What does not fit goes from the oldest on."""
    count = buffer.budget.count
    framed = render_frame(frame, limit // FRAME_SHARE if buffer.items or buffer.lines else limit, count)
    shown = render_buffer(buffer, limit - count(framed + "\n\n") if framed else limit)
    both = "\n\n".join(filter(None, (framed, shown)))
    return both if count(both) <= limit else clip_text(both, limit, count)


def render_frame(frame: Frame, limit: int, count: CountTokens) -> str:
    subgoals = [_short(goal, SUBGOAL) for goal in frame.subgoals[-SUBGOALS:]]
    results = [
        f"  {_short(name, NAME)}: {_short(text, RESULT)}" for name, text in list(frame.results.items())[-RESULTS:]
    ]
    thoughts = [f"  - {_short(thought, THOUGHT)}" for thought in frame.scratchpad[-THOUGHTS:]]
    while True:
        text = _framed(frame, subgoals, results, thoughts)
        if count(text) <= limit:
            return text
        least = results or thoughts or subgoals
        if not least:
            return clip_text(text, limit, count)
        del least[0]


def render_buffer(buffer: Buffer, limit: int) -> str:
    """All of it is quoted: what a tool said cannot pass for a line of this text."""
    count = buffer.budget.count
    items: list[str] = []
    room = limit - count(_HEADINGS)
    for entry in reversed(buffer.items):
        shown = _item(entry, escape_text(entry.text))
        if not items and count(shown) > room:
            shown = _item(entry, clip_text(escape_text(entry.text), room - count(_item(entry, "")), count))
        room -= count(shown + "\n")
        if room < 0:
            break
        items.insert(0, shown)
    quoted = [replace(one, tokens=count(_quoted(one) + "\n")) for one in buffer.lines]
    told = choose_lines(quoted, room, count)
    while told or items:
        text = _buffered(told, items, len(buffer.items) - len(items))
        if count(text) <= limit:
            return text
        # Parts may count more together than apart.
        del (told or items)[0]
    return ""


def _framed(frame: Frame, subgoals: list[str], results: list[str], thoughts: list[str]) -> str:
    lines = [f"Current Task: {_short(frame.task, TASK)}"] if frame.task else []
    lines += [f"Current Goal: {_short(frame.goal, TASK)}"] if frame.goal else []
    lines += [f"Subgoals: {' > '.join(subgoals)}"] if subgoals else []
    if results:
        older = len(frame.results) - len(results)
        lines += [f"\nIntermediate Results{f' ({older} older ones not shown)' if older else ''}:", *results]
    if thoughts:
        lines += ["\nRecent Thoughts:", *thoughts]
    return "\n".join(lines).strip()


def _buffered(told: Sequence[DigestLine], items: Sequence[str], older: int) -> str:
    blocks = ["\n".join(["Earlier:", *map(_quoted, told)])] if told else []
    if items:
        blocks.append("\n".join([f"Latest{f' ({older} older ones not shown)' if older else ''}:", *items]))
    return "\n\n".join(blocks)


def _item(entry: BufferEntry, text: str) -> str:
    label = ", ".join(filter(None, (entry.speaker, entry.kind)))
    return f'- {_short(label, NAME)}: "{text}"'


def _quoted(line: DigestLine) -> str:
    return f'- "{escape_text(line.text)}"'


def _short(text: str, limit: int) -> str:
    line = " ".join(text[: 2 * limit].split())
    return line if len(line) <= limit and len(text) <= 2 * limit else line[: limit - 1] + ELLIPSIS
