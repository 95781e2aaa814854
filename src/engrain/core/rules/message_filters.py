"""Tell talk that says nothing, such as a greeting or a thank-you, from what may be worth telling."""

from __future__ import annotations

import re
from functools import cache

from engrain.core.model.recall import RECENT_HEADING, SESSION_HEADING, SUMMARY_LABEL
from engrain.core.text.languages import load_languages
from engrain.core.text.spans import Span, merge_spans
from engrain.core.text.tokenizer import count_unspaced_characters, extract_terms, hash_term, tokenize

LONGEST = 14  # words: what is longer says something

_DIGIT = re.compile(r"\d")


def is_small_talk(text: str) -> bool:
    """Whether a sentence has no word but common ones and those of greeting, thanking and agreeing."""
    if len(text) > 12 * LONGEST or _DIGIT.search(text):
        return False
    if count_unspaced_characters(text):
        for phrase in _phrases():
            text = text.replace(phrase, "")
    said = extract_terms(text)
    return len(said) <= LONGEST and not drop_small_talk(frozenset(said)) and not count_unspaced_characters(text)


def drop_small_talk(found: frozenset[int]) -> frozenset[int]:
    """The words that are not small talk either."""
    return found - _empty_words()


def drop_common_terms(found: frozenset[int]) -> frozenset[int]:
    """The words that say something, of whichever language."""
    return found - common_terms()


@cache
def common_terms() -> frozenset[int]:
    known = load_languages()
    spoken = frozenset(map(hash_term, ("user", "assistant", "tool", "system")))
    return spoken.union(*(language.stop_terms for language in known.by_name.values())) - negation_terms()


@cache
def negation_terms() -> frozenset[int]:
    return _terms_of("negation")


@cache
def _empty_words() -> frozenset[int]:
    return common_terms() | _terms_of("small_talk") | negation_terms()


@cache
def _phrases() -> tuple[str, ...]:
    words = (word for word in load_languages().words["small_talk"] if count_unspaced_characters(word))
    return tuple(sorted(words, key=len, reverse=True))


def _terms_of(name: str) -> frozenset[int]:
    words = (word for word in load_languages().words[name] if not count_unspaced_characters(word))
    return frozenset(hash_term(one) for word in words for one in tokenize(word))


# Opens the summary of a conversation in a prompt; the lines of it are quoted with ">".
EARLIER_HEADING = "[Context from earlier conversation]"

_QUOTED = r'"(?>(?:[^"\\]|\\.)*)"'
# - slot: "words" (2026-11-15 …: the head of every line that recall makes, wherever it stands.
_ITEM = re.compile(rf'- (?:(?:[^"\\\n]|\\.){{1,400}}: )?{_QUOTED}[\s>]+(?=\(\d{{4}}-\d\d-\d\d\b)', re.DOTALL)
_PARTICULARS = re.compile(rf'\((?>(?:[^()"]|{_QUOTED}|\([^()"\n]{{0,200}}\))*)\)', re.DOTALL)
_MARGIN = r"^[ \t>|*]*"
_HEADING = re.compile(rf"{_MARGIN}## (?:{SESSION_HEADING}|{RECENT_HEADING})[ \t]*$", re.MULTILINE)
# Parts of a section that stand after an empty line.
_GOES_ON = re.compile(
    rf"{_MARGIN}(?:## |Current Task: |Current Goal: |Subgoals: |Intermediate Results|Recent Thoughts:|Earlier:|Latest)",
    re.MULTILINE,
)
_EARLIER = re.compile(rf"{_MARGIN}{re.escape(EARLIER_HEADING)}[^\n]*(?:\n[ \t]*>[^\n]*)*", re.MULTILINE)
# A summary: its head, and each of its lines in quotes.
_SUMMED_UP = re.compile(rf"- {SUMMARY_LABEL} \(\d{{4}}-\d\d-\d\d\b[^\n]*\):(?:\n[ \t>|*]*{_QUOTED}[ \t]*(?=\n|$))*")
_NOT_A_LINE_END = re.compile(r"[^\n]")
_EMPTY = re.compile(r"\n(?:[ \t>|*]*\n)+")


def find_unrecalled_spans(text: str) -> list[Span]:
    """The spans of a text that did not come from recall, in order; all of it where nothing did."""
    edges = [0, *(edge for span in _recalled(text) for edge in span), len(text)]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if text[start:end].strip()]


def blank_recalled(text: str) -> str:
    """The text with spaces in place of what came from recall, so that every other word stays at its place."""
    shown, at = "", 0
    for start, end in _recalled(text):
        shown += text[at:start] + _NOT_A_LINE_END.sub(" ", text[start:end])
        at = end
    return shown + text[at:]


def _recalled(text: str) -> list[Span]:
    found: list[Span] = []
    if "(" in text:
        found += [(item.start(), _item_end(text, item.start(), item.end())) for item in _ITEM.finditer(text)]
    if f"- {SUMMARY_LABEL} (" in text:
        found += [match.span() for match in _SUMMED_UP.finditer(text)]
    if EARLIER_HEADING in text:
        found += [match.span() for match in _EARLIER.finditer(text)]
    at = 0
    while "## " in text and (heading := _HEADING.search(text, at)):
        at = _section_end(text, heading.end())
        found.append((heading.start(), at))
    return merge_spans(found)


def _item_end(text: str, start: int, at: int) -> int:
    """The end of the line, where nothing can follow; inside a sentence, where the bracket is closed."""
    line_end = len(text) if (found := text.find("\n", at)) < 0 else found
    begins = not text[text.rfind("\n", 0, start) + 1 : start].strip(" \t>|*")
    if begins and text[at:line_end].rstrip().endswith(")"):
        return line_end
    particulars = _PARTICULARS.match(text, at)
    return particulars.end() if particulars else line_end


def _section_end(text: str, at: int) -> int:
    """These sections have lines of any form: all of it, up to an empty line after which none of their parts begins."""
    for gap in _EMPTY.finditer(text, at):
        if not _GOES_ON.match(text, gap.end()):
            return gap.start()
    return len(text)


# A letter that no pattern names: hidden words still count as a word where they stand.
HIDDEN = "ᚠ"

_ASIDE = re.compile(
    r"""^[ \t]*+(?:
      >                                                                      # quoted
    | \[?\d{4}-\d\d-\d\d[T ]\d\d: | \[?\d\d:\d\d:\d\d                        # a log's line
    | \[?(?:INFO|WARN|WARNING|ERROR|DEBUG|TRACE|FATAL)\b
    | Traceback\ \( | File\ " | at\ [\w.$]+\( | [$%]\ | >>>\ | \.\.\.\       # a terminal's
    | //\ | /\* | \#\ ?(?:NOTE|TODO|FIXME|HACK|XXX)\b | <!--               # a comment's
    | (?:def|class|import|from|const|let|var|function|return|if|for|while)\ [^\n]*[:;{(]$
    | [\w.]+\ ?=\ ?(?:["'\[{(\d]|True\b|False\b|None\b|null\b)             # a program's
    | [\w.]+\([^\n]*\)$ | [^\n]*[;{}]$ | [{}<]
    ).*$""",
    re.MULTILINE | re.VERBOSE,
)
_FORWARDED = re.compile(
    r"^[ \t]*+(?:-{2,}.*(?:forwarded|original) message|on [^\n]{5,80} wrote:[ \t]*$|from: [^\n]+\n[\w-]+: [^\n]+\n)",
    re.MULTILINE | re.IGNORECASE,
)
_LABELS = "note|remember|decision|update|correction|reminder|important|rule|also|fyi|ps"
_SPEAKER = re.compile(
    rf"^[ \t]*+(?:\[?\d\d?:\d\d[^\n\]]{{0,12}}\]? ?)?(?!(?:{_LABELS}):)"
    r"(?:user|assistant|human|ai|bot|system|(?-i:[A-Z])\w{0,20}(?: (?-i:[A-Z])\w{0,20})?): .*$",
    re.MULTILINE | re.IGNORECASE,
)
_QUOTED_LINES = re.compile(
    r"`[^`\n]{1,400}`|\"[^\"\n]{1,600}\"|“[^”\n]{1,600}”|„[^“”\n]{1,600}[“”]|«[^»\n]{1,600}»|‘[^’\n]{1,600}’(?!\w)"
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,600}'(?!\w)"
)


def blank_pasted(text: str) -> str:
    """The text in the same length, where what is not the speaker's own is blank, or a word of hidden letters."""
    shown = _ASIDE.sub(_blank, text)
    forwarded = _FORWARDED.search(shown)
    if forwarded:
        shown = shown[: forwarded.start()] + " " * (len(shown) - forwarded.start())
    if len(_SPEAKER.findall(shown)) > 1:
        shown = _SPEAKER.sub(_blank, shown)
    shown = _QUOTED_LINES.sub(lambda match: match[0][0] + HIDDEN * (len(match[0]) - 2) + match[0][-1], shown)
    return shown.replace("’", "'")


def blank_code(text: str) -> str:
    """The text in the same length with blocks of code blank; one that is never closed goes to the end."""
    for mark in ("```", "~~~"):
        parts = text.split(mark)
        if len(parts) > 1:
            # Every second part is inside, and its marks with it.
            shown = [part if place % 2 == 0 else " " * len(part) for place, part in enumerate(parts)]
            text = (" " * len(mark)).join(shown)
    return text


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


# What people say to each other ("from now on, call me Bo") is not meant: these turn against earlier instructions, play
# the system's part, or ask for something to be kept from the user. Bounded, so that any text is read in linear time.
_SIGNS = re.compile(
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
    return _SIGNS.search(text) is not None
