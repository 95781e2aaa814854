"""Name the repository of a folder: worktrees and subfolders share a name, and two of one name stay apart."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.ports.plain_files import read_plain

_SECTION = re.compile(r"^\s*\[\s*remote\s+\"(.+)\"\s*\]")
_URL = re.compile(r"^\s*url\s*=\s*(.+?)\s*$", re.IGNORECASE)
_SHORT_URL = re.compile(r"(?:[^@/\s]+@)?(?P<host>[^:/\s]{2,}):(?!//)(?P<path>.+)")
_LONG_URL = re.compile(r"[a-z+]+://(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+)?/(?P<path>.+)", re.IGNORECASE)
_MAX_NAME = 200


@dataclass(frozen=True)
class Repository:
    """A repository: its name is the remote (host/owner/name), else the folder of its main checkout."""

    name: str
    folder: Path
    branch: str = ""


def find_user() -> str:
    """The name of the OS user. Not from the environment: clients start some of our processes without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())  # a container may run as a user without a name


def make_scopes(repository: Repository, user: str | None = None) -> tuple[Scope, Scope]:
    """The scope of this user in the repository, and that of the user everywhere."""
    name = user or find_user()
    return Scope(agent=repository.name, user=name), Scope(user=name)


def find_repository(folder: str | os.PathLike[str]) -> Repository:
    """Find the repository of a folder by reading git's own files: a process for it would cost 5 ms and more."""
    start = Path(_expand_user(os.fspath(folder))).absolute()
    for parent in (start, *start.parents):
        marker = parent / ".git"
        if os.path.exists(marker):  # unlike Path.exists, also for a name that is too long
            git = _resolve_git_folder(marker)
            common = _find_common_folder(git)
            remote = _read_remote(common, _stamp(common / "config"))
            name = remote or str(common.parent if common.name == ".git" else common)
            return Repository(_make_name(name), parent, _read_branch(git))
    return Repository(_make_name(str(start)), start)


def _make_name(text: str) -> str:
    """Return a name that a store takes: a transcript may name any folder, and a folder may have any bytes."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")[-_MAX_NAME:]


def _expand_user(name: str) -> str:
    try:
        return os.path.expanduser(name)
    except ValueError:  # a NUL in the name of a user
        return name


def normalize_remote(url: str) -> str:
    """Return host/owner/name of a remote URL; an empty text for a path of this machine."""
    match = _LONG_URL.fullmatch(url) or _SHORT_URL.fullmatch(url)
    if match is None or url.lower().startswith("file:"):
        return ""
    path = match["path"].strip("/").removesuffix(".git").strip("/")
    return f"{match['host']}/{path}".casefold()


def _resolve_git_folder(marker: Path) -> Path:
    """`.git` is a folder, or in a worktree or submodule a file that names one."""
    if marker.is_dir():
        return marker
    text = _read(marker)
    named = text.partition("gitdir:")[2].strip()
    return (marker.parent / named).resolve() if named else marker.parent


def _find_common_folder(git: Path) -> Path:
    named = _read(git / "commondir").strip()
    return (git / named).resolve() if named else git


@lru_cache(maxsize=256)
def _read_remote(common: Path, stamp: int) -> str:
    """The remote `origin`, else the first one."""
    section = ""
    urls: dict[str, str] = {}
    for line in _read(common / "config").splitlines():
        if line.lstrip().startswith("["):
            match = _SECTION.match(line)
            section = match[1] if match else ""
        elif section and (match := _URL.match(line)):
            urls.setdefault(section, match[1])
    chosen = urls.get("origin") or next(iter(urls.values()), "")
    return normalize_remote(chosen)


def _read_branch(git: Path) -> str:
    return _read(git / "HEAD").strip().removeprefix("ref: refs/heads/")[:_MAX_NAME]


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _read(path: Path) -> str:
    try:
        return read_plain(path).decode("utf-8", "replace")
    except EngrainError:
        return ""
