"""Servers to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_kit import RunningServer, run_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server with keys and none yet."""
    with run_server(tmp_path) as running:
        yield running
