"""Examples of a promise: how many of them are tried, and many of them in one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

Test = Callable[..., None]
# The reference store has its own conformance suite; paths through it come with the long suites.
REFERENCE = pytest.param("reference", marks=pytest.mark.slow)
# The same verbs through a server: a memory over HTTP behaves as one in this process.
SERVED = pytest.param("served", marks=pytest.mark.slow)


def up_to(count: int) -> int:
    """A quarter of the examples in the default run, which tries the same ones every time."""
    return max(count // 4, 5) if settings().derandomize else count


def for_each(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every row and report all rows that fail. One test for pytest, with the rows of `parametrize`.

    For promises about values alone: all rows share the fixtures.
    """
    named = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    listed = list(rows)
    assert listed, "there is no row to try"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*fixtures: Any, **named_fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in listed:
                values = dict(zip(named, row if len(named) > 1 else (row,), strict=True))
                try:
                    test(*fixtures, **named_fixtures, **values)
                except (Exception, pytest.fail.Exception) as exc:  # noqa: BLE001
                    exc.add_note(f"with {values!r}")
                    failures.append(exc)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(listed)} rows fail", failures)

        signature = inspect.signature(test)
        rest = [one for name, one in signature.parameters.items() if name not in named]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
