"""Find text in a message that its speaker did not write: recalled, pasted or injected."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engrain.core.model.recall import (
    PROFILE_HEADING,
    RECENT_HEADING,
    SESSION_HEADING,
    SUMMARY_LABEL,
    WISHES_HEADING,
)
from engrain.core.text.passages import Span, merge_spans

# Opens the summary of a conversation in a prompt. Its lines are quoted with ">".
EARLIER_HEADING = "[Context from earlier conversation]"

_QUOTED = r'"(?>(?:[^"\\]|\\.)*)"'
# The head of every line that recall writes, wherever it stands: - slot: "words" (2026-11-15 …
_RECALLED_ITEM = re.compile(
    rf'- (?:(?:(?:[^"\\\n]|\\.){{1,400}}|"(?:[^"\\\n]|\\.){{1,400}}"): )?{_QUOTED}[\s>]+(?=\(\d{{4}}-\d\d-\d\d\b)',
    re.DOTALL,
)
_ITEM_DETAILS = re.compile(rf'\((?>(?:[^()"]|{_QUOTED}|\([^()"\n]{{0,200}}\))*)\)', re.DOTALL)
_MARGIN = r"^[ \t>|*]*"
_HEADINGS = "|".join((WISHES_HEADING, PROFILE_HEADING, SESSION_HEADING, RECENT_HEADING))
_HEADING = re.compile(rf"{_MARGIN}## (?:{_HEADINGS})[ \t]*$", re.MULTILINE)
# Parts of a section that may follow an empty line.
_SECTION_PART = re.compile(
    rf"{_MARGIN}(?:## |Current Task: |Current Goal: |Subgoals: |Intermediate Results|Recent Thoughts:|Earlier:|Latest)",
    re.MULTILINE,
)
_EARLIER_SUMMARY = re.compile(rf"{_MARGIN}{re.escape(EARLIER_HEADING)}[^\n]*(?:\n[ \t]*>[^\n]*)*", re.MULTILINE)
# The head of a recalled summary, and each of its lines in quotes.
_RECALLED_SUMMARY = re.compile(
    rf"- {SUMMARY_LABEL} \(\d{{4}}-\d\d-\d\d\b[^\n]*\):(?:\n[ \t>|*]*{_QUOTED}[ \t]*(?=\n|$))*"
)
_NOT_A_LINE_END = re.compile(r"[^\n]")
_EMPTY_LINES = re.compile(r"\n(?:[ \t>|*]*\n)+")


def find_unrecalled_spans(text: str) -> list[Span]:
    """Return the spans of a text that did not come from recall, in order."""
    edges = [0, *(edge for span in _find_recalled(text) for edge in span), len(text)]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if text[start:end].strip()]


def blank_recalled(text: str) -> str:
    """Replace recalled text by spaces. Every other word keeps its offset."""
    kept, at = [], 0
    for start, end in _find_recalled(text):
        kept += [text[at:start], _NOT_A_LINE_END.sub(" ", text[start:end])]
        at = end
    return "".join([*kept, text[at:]])


def _find_recalled(text: str) -> list[Span]:
    found: list[Span] = []
    if "(" in text:
        found += _find_items(text)
    if f"- {SUMMARY_LABEL} (" in text:
        found += [match.span() for match in _RECALLED_SUMMARY.finditer(text)]
    if EARLIER_HEADING in text:
        found += [match.span() for match in _EARLIER_SUMMARY.finditer(text)]
    at = 0
    while "## " in text and (heading := _HEADING.search(text, at)):
        at = _find_section_end(text, heading.end())
        found.append((heading.start(), at))
    return merge_spans(found)


def _find_items(text: str) -> Iterator[Span]:
    """Yield recalled items. One ends with its line, or inside a sentence with the closing bracket of its details."""
    line_end = -1
    for item in _RECALLED_ITEM.finditer(text):
        start, at = item.span()
        # Each line is read once, however many items are in it: only the first one can begin it.
        begins_line = start > line_end and not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t>|*")
        if at > line_end:
            line_end = len(text) if (found := text.find("\n", at)) < 0 else found
        if begins_line and text[at:line_end].rstrip().endswith(")"):
            yield start, line_end
            continue
        details = _ITEM_DETAILS.match(text, at)
        yield start, details.end() if details else line_end


def _find_section_end(text: str, at: int) -> int:
    """Find the end of a section: the first empty line that no known part of a section follows."""
    for gap in _EMPTY_LINES.finditer(text, at):
        if not _SECTION_PART.match(text, gap.end()):
            return gap.start()
    return len(text)


# Text that turns against earlier instructions, plays the system, or asks to keep something from the user. Ordinary
# requests ("from now on, call me Bo") do not match. Every part is bounded, so that any text is read in linear time.
_INJECTION = re.compile(
    r"""
      \b(?:ignore|disregard|forget|override|bypass)\b[^.!?\n]{0,30}
        \b(?:previous|prior|above|earlier|preceding|all|other|your|system|safety)\b[^.!?\n]{0,30}
        \b(?:instructions?|prompts?|rules?|guidelines|directions|constraints)\b
    | \b(?:ignoriere|vergiss|missachte)\b[^.!?\n]{0,40}\b(?:anweisungen|regeln|vorgaben)\b
    | \b(?:ignore[zr]?|oublie[zr]?)\b[^.!?\n]{0,40}\b(?:consignes|instructions|règles)\b
    | \b(?:ignora|olvida|omite)\b[^.!?\n]{0,40}\b(?:instrucciones|indicaciones|reglas)\b
    | <\|?(?:im_start|im_end|system|endoftext)\|?> | \[/?(?:INST|SYSTEM)\]
    | ^[ ]{0,8}\#{0,4}[ ]{0,4}system[ ]?(?:(?:prompt|message)[ ]?:|:[ ]{1,4}(?:you|the\ user|ignore|from\ now)\b)
    | \b(?:reveal|print|repeat|leak|show)\b[^.!?\n]{0,20}\b(?:system|hidden|initial)\ (?:prompt|instructions|message)\b
    | \b(?:do\ not|don't|never|without)\b[^.!?\n]{0,20}\b(?:tell|inform|mention|alert)(?:ing)?\b
        [^.!?\n]{0,20}\bthe\ user\b
    | \byou\ are\ now\ (?:in\ )?(?:developer|admin|debug|jailbr\w+|dan)\b
    | \bnew\ (?:system\ )?instructions\ (?:for\ (?:the\ )?(?:ai|assistant|model|agent)|:)
    | \b(?:ai|assistants?|agents?|language\ models?|llms?)\b[^.!?\n]{0,20}\b(?:must|should)\b[^.!?\n]{0,60}
        \b(?:send|forward|transfer|email|upload|execute|run|delete|recommend)\b
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


def is_prompt_injection(text: str) -> bool:
    return _INJECTION.search(text) is not None
