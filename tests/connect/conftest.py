"""A home folder of its own for each test of connected clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from engrain.connect.connect_home import ConnectHome


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("ENGRAIN_HOME", str(tmp_path / "home"))
    return folder


@pytest.fixture
def home(user_folder: Path) -> ConnectHome:
    return ConnectHome.find().prepare()
