"""Python 3.11.2, that of Debian 12, goes on at the wrong place behind a possessive group that fails within."""

from __future__ import annotations

import re

import pytest
from source_trees import SOURCE

POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\{?[\d,]+\}?\})\+")


def test_no_pattern_has_a_possessive_group() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{number}: write (?>(?:…)*) instead"
        for path in sorted((*SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml")))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if POSSESSIVE_GROUP.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("pattern", [r"(?:a|b)*+", r"(?:a|b)?+", r"(?:a|b){2,}+", r"(?:a|b){{2,5}}+"])
def test_a_possessive_group_is_found(pattern: str) -> None:
    assert POSSESSIVE_GROUP.search(pattern)
    assert not POSSESSIVE_GROUP.search(pattern.replace("+", ""))
