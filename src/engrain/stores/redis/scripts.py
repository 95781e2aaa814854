"""Named scripts, from the .lua files beside this one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_SHARED = "shared"


class Script(NamedTuple):
    text: str
    sha: str


@cache
def load(name: str) -> Mapping[str, Script]:
    """Each script by its name, with what the file's scripts share in front."""
    pieces = _NAME.split((files("engrain.stores.redis") / name).read_text("utf-8"))
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    shared = parts.pop(_SHARED, "")
    return {key: _script(shared + body) for key, body in parts.items()}


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
