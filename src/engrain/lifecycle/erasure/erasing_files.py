"""Take what was erased out of a folder of files beside a memory."""

from __future__ import annotations

from collections.abc import Callable

from engrain.core.erasure import Erasure
from engrain.core.errors import Conflict, StoreError
from engrain.core.mirrored import BASE, CONFLICTS, MEMORY, OVERFLOW, SOUL
from engrain.lifecycle.erasure.prints import looked_for, prints_from
from engrain.lifecycle.folder.mirror import WAIT, Mirror
from engrain.ports import Kit
from engrain.ports.files import Folder

OpenFolder = Callable[[str], Folder]


def clean_folder(kit: Kit, folder: Folder, one: Erasure) -> int:
    """How many files went or were changed. Of a user all go; of a part, what a sync takes out.

    StoreError if a person's own lines still say it: nobody else may edit those."""
    before = folder.signature()
    if one.by == "user":
        return _remove_all(folder)
    if one.subject is None:
        return 0
    Mirror(kit, one.subject.scope, folder).sync()
    for name in _names(folder):
        found, _ = looked_for(prints_from(one.prints), [folder.read(name) or b""])
        if len(found):
            raise StoreError(
                f"{folder.path}/{name} still says it. Take it out of the file, then: engrain erase --resume."
            )
    return int(folder.signature() != before)


def _remove_all(folder: Folder) -> int:
    gone = 0
    with folder.lock(WAIT):
        for name in _names(folder):
            was = folder.read(name)
            if was is not None:
                try:
                    folder.remove(name, was)
                except Conflict as exc:
                    raise StoreError(f"{folder.path}/{name} is being written: {exc}") from exc
                gone += 1
    return gone


def _names(folder: Folder) -> list[str]:
    return [SOUL, MEMORY, OVERFLOW, CONFLICTS, *folder.days(), BASE]
