"""Say by receipts that were kept outside a lost store who was erased from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput
from engrain.core.model.erasure import ErasedSubject, Erasure

if TYPE_CHECKING:
    from engrain.privacy.receipts import Receipt
    from engrain.privacy.tombstones import Forgetting
    from engrain.stores.sqlite import SqliteStore


def read_receipts(paths: Sequence[str | os.PathLike[str]]) -> list[Receipt]:
    """Of files, and of all that end in .json in folders. InvalidInput names one that is no receipt."""
    from engrain.privacy.receipts import Receipt

    found = []
    for file in (one for path in paths for one in _files(Path(path).expanduser())):
        try:
            found.append(Receipt.read(file.read_bytes()))
        except OSError as exc:
            raise InvalidInput(f"{file} cannot be read: {exc.strerror}. Nothing is restored.") from exc
        except InvalidInput as exc:
            raise InvalidInput(f"{file}: {exc} Nothing is restored.") from exc
    return found


class Receipts:
    """In the place of a present store, or beside it. What was only forgotten, they do not know.

    Nobody can say that a receipt is genuine without the log that it stands in; the backup stays as it is, and what each
    one took out is counted."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._receipts = sorted(receipts, key=lambda one: str(one.values["asked_at"]))
        self.found: dict[str, int] = {}  # rows from before it, by the id of each receipt

    @property
    def told(self) -> Mapping[str, str]:
        """For the log of the store that is made: the digest of each, by its id."""
        return {str(one.values["receipt"]): one.digest for one in self._receipts}

    def look(self, restored: SqliteStore) -> None:
        """How many rows each of them names, before anything is taken out."""
        found = restored.erasing.left_of([*map(_erasure, self._receipts)])
        for one, counts in zip(self._receipts, found, strict=True):
            self.found[str(one.values["receipt"])] = sum(counts.values())

    def replay(self, restored: Forgetting) -> Mapping[str, int]:
        erasing = restored.erasing
        known = erasing.all_erased()
        ids, times = {one.receipt for one in known}, {one.mark: one.at for one in known}
        erased = [one for one in map(_erased, self._receipts) if one.receipt not in ids]
        return erasing.replay([one for one in erased if one.mark not in times or times[one.mark] < one.at], [])


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.json"))
    if not found:
        raise InvalidInput(f"there is no receipt in {path}: none of its files ends in .json.")
    return found


def _erasure(receipt: Receipt) -> Erasure:
    values = receipt.values
    return Erasure(values["receipt"], values["subject"], values["by"], "named", _moment(receipt))


def _erased(receipt: Receipt) -> ErasedSubject:
    values = receipt.values
    return ErasedSubject(values["subject"], values["by"], _moment(receipt), values["receipt"])


def _moment(receipt: Receipt) -> datetime:
    """Of a user as the store marks it; of a part, a little before: what was written in between was never there."""
    name = "asked_at" if receipt.values["by"] == "user" else "erased_at"
    return datetime.fromisoformat(receipt.values[name])
