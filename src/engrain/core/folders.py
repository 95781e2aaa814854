"""Name the folder of files that is kept in step with a memory, where each memory has its own."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from engrain.core.errors import ConfigError
from engrain.core.scope import Scope

PARTS = ("user", "agent", "tenant")
NOBODY = "none="
LONGEST = 40

_PLACE = re.compile(r"\{(\w*)\}")
# As it stands, on every file system: no capitals, which some do not tell from small letters, and nothing that leads on.
_PLAIN = re.compile(rf"[a-z0-9_][a-z0-9_.@+-]{{0,{LONGEST - 1}}}")


def checked_pattern(pattern: str, where: str) -> None:
    known = ", ".join(f"{{{part}}}" for part in PARTS)
    for name in _PLACE.findall(pattern):
        if name not in PARTS:
            raise ConfigError(f"{where}: mirror may have {known} in it, not {{{name}}}.")
    if {*"{}"} & {*_PLACE.sub("", pattern)}:
        raise ConfigError(f"{where}: mirror may have {known} in it, and no other braces: {pattern!r}.")


def for_each(pattern: str) -> bool:
    """Whether the folder is named after the memory; else there is one folder, of one memory."""
    return _PLACE.search(pattern) is not None


def parted(pattern: str, *scopes: Scope) -> str:
    """A pattern by which these memories, that have one folder together, have one each."""
    named = {*_PLACE.findall(pattern)}
    wanted = named | {part for part in PARTS for one in scopes if getattr(one, part)}
    if wanted == named:
        wanted |= {part for part in PARTS if part not in named and part != "tenant"} or {*PARTS}
    return "/".join(["files", *(f"{{{part}}}" for part in PARTS if part in wanted)])


def folder_of(pattern: str, scope: Scope) -> str:
    """Names that are not safe as the name of a folder are written in letters that are, with a hash that tells them from
    all others; one that is not given is a name of its own. None leads out of the folder, and no two are alike."""
    return _PLACE.sub(lambda found: _name(getattr(scope, found[1])), pattern)


def _name(given: str | None) -> str:
    if given is None:
        return NOBODY
    if _PLAIN.fullmatch(given) and not given.endswith("."):
        return given
    letters = unicodedata.normalize("NFC", given).lower()
    kept = re.sub(r"\W+", "-", letters).strip("-")[:LONGEST]
    # "=" stands in no plain name.
    return f"{kept}={hashlib.blake2b(given.encode(), digest_size=8).hexdigest()}"
