"""Start a function in a process of its own, to be killed. It has our modules, which a program takes 0.3 s to load."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess


def start_forked(work: Callable[..., object], *values: object) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=values, daemon=True)
    process.start()
    return process


def run_forked(work: Callable[..., object], *values: object) -> int | None:
    """Return how it ended: 0, 1 for an error, or the negative number of the signal that killed it."""
    process = start_forked(work, *values)
    process.join(300)
    return process.exitcode
