"""Take out of a store that was set back by other means what was forgotten or erased since."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from engrain.config import settings
from engrain.core.errors import InvalidInput
from engrain.memory.present import Present, asked
from engrain.memory.receipts import Receipts

if TYPE_CHECKING:
    from engrain.ports import AuditLog
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting

PathOrUrl = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many rows of which kind went, and whether their bytes are swept out too: else `engrain maintain` does it."""

    rows: Mapping[str, int]
    swept: bool

    def __str__(self) -> str:
        count = sum(self.rows.values())
        if not count:
            return "Nothing of it was there."
        told = "1 row was" if count == 1 else f"{count:,} rows were"
        return f"{told} taken out.{'' if self.swept else ' Their bytes are still to be swept out: engrain maintain.'}"


class _Cared(Protocol):
    @property
    def audit(self) -> AuditLog: ...

    def together(self, do: Callable[[], Mapping[str, int]]) -> Mapping[str, int]: ...

    def purge(self) -> bool: ...


def replay_erasures(restored: PathOrUrl, against: PathOrUrl | Sequence[Receipt]) -> Replayed:
    """For a database that its own tools have set back, before any program opens it; a backup of engrain's own comes
    back by `restore_backup`. `against` is the present store of the same memory, with which its marks, holds and audit
    log come along, or receipts that were kept outside of it (`read_receipts`). It is one transaction: cut off, it has
    done nothing, and is done again."""
    from engrain.factory import open_movable

    target = settings(restored).store
    with ExitStack() as opened:
        known: Present | Receipts
        if isinstance(against, (str, os.PathLike)):
            if settings(against).store == target:
                raise InvalidInput("RESTORED and the present store are the same.")
            known = opened.enter_context(asked(against, None))
        else:
            known = Receipts(against)
        store = opened.enter_context(closing(open_movable(target)))
        cared = cast("_Cared", store)

        def do() -> Mapping[str, int]:
            rows = known.replay(cast("Forgetting", store))
            given = {"receipts": known.told} if isinstance(known, Receipts) else {}
            if given or any(rows.values()):
                cared.audit.append("restore", {"kept_out": sum(rows.values()), **given})
            if isinstance(known, Present):
                known.check()
            return rows

        rows = cared.together(do)
        return Replayed(rows, cared.purge())
