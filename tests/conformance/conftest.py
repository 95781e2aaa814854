"""A suite that runs once more on another form of a backend tries a few of its tests by default."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The other tests of a class with `by_default` come with the long suites."""
    for item in items:
        kept = getattr(getattr(item, "cls", None), "by_default", None)
        if kept is not None and getattr(item, "originalname", item.name) not in kept:
            item.add_marker(pytest.mark.slow)
