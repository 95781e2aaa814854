"""Tell how the file is deployed: what a write survives, where it lies, who can read it."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from engrain.core.identity import Scope
from engrain.core.model.queries import Finding
from engrain.ports.storage import on_encrypted_disk
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.sql import load
from engrain.stores.vectors.clients import check_owners

_SQL = load("deployment.sql")
_FULL = 2  # of the pragma synchronous: every commit waits for the disk


class Deployment(Handle):
    def deployment(self) -> list[Finding]:
        around = (*self._writable(), *self._file_system(), *self._rights(), *self._sealed())
        return [self._sync(), *around, self._owners()]

    def search_state(self, scope: Scope) -> Finding:
        state = self._index.usage()
        held, cap = f"{state['bytes'] / 1e6:,.1f} MB", f"{state['cap'] / 1e6:,.1f} MB"
        if state["over_cap"]:
            why = f"this memory needs more than the {cap} that search may hold, so every search reads it anew"
            return Finding("search", "warn", why, "raise cache_bytes in [stores] of the settings file")
        return Finding("search", "pass", f"search holds {held} of at most {cap}")

    def _sync(self) -> Finding:
        if self._site.path is None:
            why = "the store is in memory, so that nothing outlives this process"
            return Finding("sync", "warn", why, 'open a file instead: Memory("agent.db")')
        # Each connection has a level of its own: what counts is that of the one that writes.
        run = self.snapshot if self._site.read_only else self._writer.run_alone
        ((level,),) = run(lambda db: db.rows("pragma synchronous"))
        if level < _FULL:
            why = f"synchronous is {level}: a power cut may take acknowledged writes"
            return Finding("sync", "fail", why, "restart the program; engrain sets it to full when it opens")
        return Finding("sync", "pass", f"every commit waits for the disk (synchronous {level}, {self._site.journal})")

    def _writable(self) -> Iterator[Finding]:
        path = self._site.path
        shut = [one for one in (path, path.parent) if not os.access(one, os.W_OK)] if path else []
        if path and shut and _mounted_to_read(path):
            why = f"{path} can only be read, so that nothing new is kept: its disk is mounted read-only"
            disk = next(one for one in path.resolve().parents if one.is_mount())
            yield Finding("writable", "fail", why, f"`mount -o remount,rw {shlex.quote(str(disk))}`, as root")
        elif shut:
            why = f"{path} can only be read, so that nothing new is kept: you may not write to {shut[0]}"
            yield Finding("writable", "fail", why, f"`chmod u+w {shlex.join(map(str, shut))}`, as their owner")

    def _file_system(self) -> Iterator[Finding]:
        if self._site.remote:
            why = f"{self._site.path} is on a network file system, where locks may fail and a write-ahead log cannot be"
            copy = f"`engrain copy {shlex.quote(str(self._site.path))} NEW`"
            mend = f"{copy}, with NEW on a local disk; or a postgresql:// store"
            yield Finding("file system", "warn", why, mend)
        elif self._site.path is not None:
            yield Finding("file system", "pass", f"{self._site.path} is on a local disk")

    def _rights(self) -> Iterator[Finding]:
        if self._site.path is None:
            return
        # Of the file that holds no content, who can read it does not matter.
        found = [one for one in self._site.files() if not one.name.endswith(("-lock", "-shm")) and open_to_others(one)]
        if found:
            names = ", ".join(one.name for one in found)
            why = f"every user of this machine can read {names}"
            yield Finding("rights", "warn", why, f"`chmod 600 {shlex.join(map(str, found))}`")
        else:
            yield Finding("rights", "pass", "no other user of this machine can read the store's files")

    def _sealed(self) -> Iterator[Finding]:
        if self._site.path is None:
            return
        if self._site.key is not None:
            yield Finding("encryption", "pass", "the file is encrypted with a key")
        elif on_encrypted_disk(self._site.path):
            yield Finding("encryption", "pass", "the file is plain, on a disk that is encrypted")
        else:
            why = "neither the file nor its disk is encrypted, as far as can be seen: who copies the file reads it"
            own = shlex.quote(str(self._site.path))
            sealed = f"`engrain backup COPY --store {own}`, `ENGRAIN_KEY=KEY engrain restore COPY {own} --force --yes`"
            mend = f'encrypt the disk; or `pip install "engrain[encryption]"`, {sealed}'
            yield Finding("encryption", "warn", why, mend)

    def _owners(self) -> Finding:
        ((nobodys, owned),) = self.snapshot(lambda db: db.rows(_SQL["owners"]))
        return check_owners(nobodys, owned)


def open_to_others(path: Path) -> bool:
    """Whether somebody who is neither the owner nor of the group can read it, and get there."""
    try:
        if sys.platform == "win32" or not path.stat().st_mode & stat.S_IROTH:
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
    except OSError:  # a log may go at any moment
        return False


def _mounted_to_read(path: Path) -> bool:
    return sys.platform != "win32" and bool(os.statvfs(path).f_flag & os.ST_RDONLY)
