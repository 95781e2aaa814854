"""Find where a message takes a request to forget back: "actually no, leave it"."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from engrain.core.rules.forget_requests import MAX_MESSAGE_CHARACTERS, fold_text, mentions_forgetting
from engrain.core.text.passages import Span

_MAX_LEADS = 6
_BREAK = r"(?:^|[,.;:!?…()\n–—]|\s-+\s|\s(?=(?:{leads})\b))"
_SPACE = r"[\s,.;:!…–—-]*"


def find_withdrawal(text: str) -> Span | None:
    """Return where a message takes back the requests before; None if it does not, or asks again behind it."""
    found = list(_load_patterns()[0].finditer(fold_text(text[:MAX_MESSAGE_CHARACTERS])))
    return found[-1].span() if found and not mentions_forgetting(text[found[-1].end() :]) else None


def find_second_thought(text: str) -> int | None:
    """Return where a message corrects itself, perhaps to mean another thing: "no wait, my e-mail"."""
    found = [match.start() for match in _load_patterns()[1].finditer(fold_text(text[:MAX_MESSAGE_CHARACTERS]))]
    return found[-1] if found else None


@cache
def _load_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of words that withdraw a request, and of those that only correct it."""
    file = resources.files("engrain.core") / "data" / "forget_withdrawals.toml"
    tables = tomllib.loads(file.read_text("utf-8")).values()
    leads, refuses, keeps, corrects = (
        "|".join(re.sub(r"\n\s*", "", table[name]) for table in tables)
        for name in ("leads", "refuses", "keeps", "corrects")
    )
    begins = _BREAK.format(leads=leads) + rf"{_SPACE}(?:(?:{leads}|{refuses})\b{_SPACE}){{0,{_MAX_LEADS}}}"
    ends = rf"(?:{refuses})\b(?:{_SPACE}(?:{leads}|{refuses})\b){{0,{_MAX_LEADS}}}[\s.!…)]*$"
    return re.compile(rf"{begins}(?:(?:{keeps})|{ends})"), re.compile(rf"{begins}(?:{corrects})\b")
