"""Try a load in one transaction that is rolled back, so that a dry run is exact."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from engrain.core.errors import TooLarge
from engrain.ports import Services
from engrain.transfer.export import require_movable

Answer = TypeVar("Answer")
# Other writers wait for a preview: those of the file in SQLite, those of the scope in Postgres.
SECONDS = 60.0


def preview(services: Services, do: Callable[[Callable[[int], None]], Answer]) -> Answer:
    """`do` is given a function to call now and then, which raises TooLarge if it takes too long."""

    def run() -> Answer:
        until = time.monotonic() + SECONDS

        def check(_: int) -> None:
            if time.monotonic() > until:
                raise TooLarge(
                    f"a dry run keeps other writers waiting, so it ends after {SECONDS:g} seconds, and this file takes "
                    "longer. Nothing was written. Split the file, or try it on a copy of the store."
                )

        return do(check)

    return require_movable(services).preview(run)
