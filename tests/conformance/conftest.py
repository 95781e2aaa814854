"""Which tests of a suite run by default, and which come with the long suites."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A suite that runs once more on another form of a backend names the tests to try `by_default`.

    A slower backend names those that run `in_full_only`."""
    for item in items:
        suite = getattr(item, "cls", None)
        kept = getattr(suite, "by_default", None)
        left_out = kept is not None and getattr(item, "originalname", item.name) not in kept
        if left_out or item.name in getattr(suite, "in_full_only", ()):
            item.add_marker(pytest.mark.slow)
