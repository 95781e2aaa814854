"""Run work in a transaction that is always rolled back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Answer = TypeVar("Answer")


class _RollBack(Exception):
    """Ends the transaction without an error for the caller."""


def run_rolled_back(transact: Callable[[Callable[[], None]], None], do: Callable[[], Answer]) -> Answer:
    """`transact` runs a function in one transaction and rolls it back if the function raises."""
    answers: list[Answer] = []

    def run() -> None:
        answers.append(do())
        raise _RollBack

    with suppress(_RollBack):
        transact(run)
    return answers[-1]  # the last one: a transaction that failed is tried again
