"""A client remembers and finds over loopback and a unix socket."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from server_kit import run_server

from engrain import Scope
from engrain.server.access import OpenAccess


@pytest.mark.parametrize("unix", [False, True])
def test_a_client_remembers_and_recalls(tmp_path: Path, unix: bool) -> None:
    with run_server(tmp_path, open_access=OpenAccess(Scope(user="ana")), unix=unix) as server:
        with server.client() as client:
            kept = client.post("/v1/remember", json={"text": "Ana likes green tea.", "slot": "user.drink"})
            assert kept.status_code == 200
            id = kept.json()["id"]
            assert client.get(f"/v1/items/{id}").json()["text"] == "Ana likes green tea."
            found = client.post("/v1/recall", json={"query": "What does Ana drink?"}).json()
            assert found["hits"][0]["item"]["id"] == id
            assert "green tea" in found["text"]
            assert client.get("/v1/slots/user.drink").json()["id"] == id
        assert server.store.memory(user="ana").get(id) is not None


def test_only_the_owner_can_open_the_unix_socket(tmp_path: Path) -> None:
    with run_server(tmp_path, open_access=OpenAccess(Scope(user="ana")), unix=True):
        mode = (tmp_path / "engrain.sock").stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
