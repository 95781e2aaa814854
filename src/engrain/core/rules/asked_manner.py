"""Tell whether a sentence asks an assistant to answer or to treat its user in some manner, from then on."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

MAX_BARE_WORDS = 8
MAX_CHARACTERS = 400
_PART = re.compile(r"[^,;:.!?()\n–—]+")


def asks_for_manner(text: str, is_question: bool = False, *, of_task: bool = False) -> bool:
    """Tell if a sentence is a wish for all answers: "no emojis please", but not "now without emojis in this draft".

    An order `of_task` stands behind another one: "Write the release notes. Use bullet points."
    """
    if len(text) > MAX_CHARACTERS:
        return False
    folded, signs = text.lower().replace("\u2019", "'"), _load_signs()
    if signs["supposed"].search(folded) or (is_question and not signs["requests"].search(folded)):
        return False
    general = signs["general"].search(folded) is not None
    if not general and (of_task or signs["once"].search(folded)):
        return False
    if (frame := signs["frames"].search(folded)) and not signs["told"].search(folded, 0, frame.start()):
        return True
    parts = (one for one in _PART.finditer(folded) if not signs["told"].search(folded, 0, one.end()))
    return any(_names_manner(one[0], signs) for one in parts)


def speaks_once(text: str) -> bool:
    """Tell if a sentence speaks of one text or one task: "write the release notes"."""
    return len(text) <= MAX_CHARACTERS and _load_signs()["once"].search(text.lower()) is not None


def _names_manner(part: str, signs: Mapping[str, re.Pattern[str]]) -> bool:
    """Tell if a part of a sentence names a manner of answering, and orders it, holds in general or says no more."""
    if not signs["manner"].search(part) or signs["others"].search(part):
        return False
    bare = len(part.split()) <= MAX_BARE_WORDS and signs["bare"].match(part)
    return bool(bare or signs["general"].search(part) or signs["orders"].search(part))


@cache
def _load_signs() -> Mapping[str, re.Pattern[str]]:
    path = resources.files("engrain.core") / "data" / "profile" / "asked_manner.toml"
    tables = tomllib.loads(path.read_text("utf-8"))
    return {name: re.compile("|".join(f"(?:{one})" for one in patterns)) for name, patterns in tables.items()}
