"""Hide what a message only carries along: code, quotations, logs, forwarded mail."""

from __future__ import annotations

import re

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
_QUOTED = re.compile(
    r"`[^`\n]{1,400}`|\"[^\"\n]{1,600}\"|“[^”\n]{1,600}”|„[^“”\n]{1,600}[“”]|«[^»\n]{1,600}»|‘[^’\n]{1,600}’(?!\w)"
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,600}'(?!\w)"
)


def own_words(text: str) -> str:
    """The text in the same length, where what is not the speaker's own is blank, or a word of hidden letters."""
    shown = _ASIDE.sub(_blank, text)
    forwarded = _FORWARDED.search(shown)
    if forwarded:
        shown = shown[: forwarded.start()] + " " * (len(shown) - forwarded.start())
    if len(_SPEAKER.findall(shown)) > 1:
        shown = _SPEAKER.sub(_blank, shown)
    shown = _QUOTED.sub(lambda match: match[0][0] + HIDDEN * (len(match[0]) - 2) + match[0][-1], shown)
    return shown.replace("’", "'")


def without_code(text: str) -> str:
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
