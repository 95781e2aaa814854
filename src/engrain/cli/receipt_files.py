"""Write receipts of erasures to files that are made before anything is erased."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from engrain.core.errors import InvalidInput

if TYPE_CHECKING:
    from engrain.lifecycle.erasure.receipts import Receipt


class ReceiptFiles:
    """For its owner's eyes alone. A second receipt goes beside the first, as ana-2.json; a file that none was written
    to goes again. `names` has the file of each receipt by its id, `failed` why it could not be written."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self._made: Path | None = None
        self.names: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def __enter__(self) -> ReceiptFiles:
        try:
            self._made = self._path and _made(self._path)
        except FileExistsError as exc:
            raise InvalidInput(f"{self._path} is there already. Give a new path for the receipt.") from exc
        except OSError as exc:
            raise InvalidInput(f"{self._path} cannot be written: {exc.strerror}. Nothing was erased.") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._made is not None:
            self._made.unlink(missing_ok=True)

    def write(self, receipt: Receipt) -> None:
        if self._path is None:
            return
        id, file = receipt.values["receipt"], None
        try:
            file, self._made = self._made or _beside(self._path), None
            file.write_text(f"{receipt}\n", encoding="utf-8")
        except OSError as exc:
            self.failed[id] = f"{file or self._path} cannot be written: {exc.strerror}"
            if file is not None:
                file.unlink(missing_ok=True)
        else:
            self.names[id] = str(file)


def _made(path: Path) -> Path:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def _beside(first: Path) -> Path:
    for number in count(2):
        try:
            return _made(first.with_name(f"{first.stem}-{number}{first.suffix}"))
        except FileExistsError:
            continue
    raise AssertionError("numbers do not end")
