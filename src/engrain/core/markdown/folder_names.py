"""Name the mirror folder of each memory from a pattern such as `files/{user}`."""

import hashlib
import re
import unicodedata

from engrain.core.errors import ConfigError
from engrain.core.identity import Scope

SCOPE_PARTS = ("user", "agent", "tenant")
MISSING_PART = "none="
MAX_PART_CHARACTERS = 40

_PLACEHOLDER = re.compile(r"\{(\w*)\}")
# Safe on every file system: no capitals, which some do not tell from small letters, and no path separators.
_SAFE_NAME = re.compile(rf"[a-z0-9_][a-z0-9_.@+-]{{0,{MAX_PART_CHARACTERS - 1}}}")


def check_folder_pattern(pattern: str, where: str) -> None:
    known = ", ".join(f"{{{part}}}" for part in SCOPE_PARTS)
    for name in _PLACEHOLDER.findall(pattern):
        if name not in SCOPE_PARTS:
            raise ConfigError(f"{where}: mirror may have {known} in it, not {{{name}}}.")
    if {*"{}"} & {*_PLACEHOLDER.sub("", pattern)}:
        raise ConfigError(f"{where}: mirror may have {known} in it, and no other braces: {pattern!r}.")


def has_placeholder(pattern: str) -> bool:
    """Tell if the pattern names a folder per memory. Without a placeholder there is one folder, of one memory."""
    return _PLACEHOLDER.search(pattern) is not None


def widen_folder_pattern(pattern: str, *scopes: Scope) -> str:
    """Return a pattern that gives each of these memories its own folder."""
    named = {*_PLACEHOLDER.findall(pattern)}
    wanted = named | {part for part in SCOPE_PARTS for one in scopes if getattr(one, part)}
    if wanted == named:
        wanted |= {part for part in SCOPE_PARTS if part not in named and part != "tenant"} or {*SCOPE_PARTS}
    return "/".join(["files", *(f"{{{part}}}" for part in SCOPE_PARTS if part in wanted)])


def fill_folder_pattern(pattern: str, scope: Scope) -> str:
    """Fill the parts of a scope into the pattern.

    An unsafe name becomes safe letters and a hash. A missing part has a name of its own.
    No name leads out of the folder, and no two scopes share one.
    """
    return _PLACEHOLDER.sub(lambda match: _make_safe_name(getattr(scope, match[1])), pattern)


def _make_safe_name(given: str | None) -> str:
    if given is None:
        return MISSING_PART
    if _SAFE_NAME.fullmatch(given) and not given.endswith("."):
        return given
    letters = unicodedata.normalize("NFC", given).lower()
    kept = re.sub(r"\W+", "-", letters).strip("-")[:MAX_PART_CHARACTERS]
    # No safe name contains "=".
    return f"{kept}={hashlib.blake2b(given.encode(), digest_size=8).hexdigest()}"
