"""The settings file: where its paths are seen from, and what it may say of an embedder."""

from __future__ import annotations

from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import ConfigError, InvalidInput, Memory
from engrain.config import load_settings
from engrain.factory import open_embedder


def toml(folder: Path, text: str) -> Path:
    path = folder / "engrain.toml"
    path.write_text(text)
    return path


def test_paths_in_a_settings_file_are_seen_from_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app").mkdir()
    file = toml(
        tmp_path / "app", '[stores]\ndefault = "agent.db"\n[lifecycle]\nmirror = "notes"\nbackup_folder = "/b"\n'
    )
    monkeypatch.chdir(tmp_path)
    found = load_settings(file)
    assert (Path(found.store), Path(found.lifecycle.mirror)) == (tmp_path / "app/agent.db", tmp_path / "app/notes")
    assert found.lifecycle.backup_folder == "/b"
    with Memory(file, embedder=HashEmbedder()) as memory:
        memory.remember("Tea.")
    assert [one.name for one in tmp_path.iterdir()] == ["app"], "nothing is made where the program was started"
    assert Path(load_settings(toml(tmp_path / "app", "")).store) == tmp_path / "app/engrain.db"


@pytest.mark.parametrize("start", ["", "../conf/"])
def test_a_path_beside_the_settings_is_shown_without_detours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "conf").mkdir()
    toml(tmp_path / "conf", '[stores]\ndefault = "../agent.db"\n[lifecycle]\nmirror = "files/{user}"\n')
    monkeypatch.chdir(tmp_path / "else")
    found = load_settings(f"{start or tmp_path / 'else' / '..' / 'conf'}/engrain.toml")
    assert (found.store, found.lifecycle.mirror) == (f"{tmp_path}/agent.db", f"{tmp_path}/conf/files/{{user}}")


@pytest.mark.parametrize("url", [":memory:", "postgresql://h/d", "reference://", "/var/agent.db"])
def test_addresses_in_a_settings_file_stay_as_they_are(tmp_path: Path, url: str) -> None:
    assert load_settings(toml(tmp_path, f'[stores]\ndefault = "{url}"\n')).store == url


def test_a_settings_file_may_say_how_long_the_vectors_of_a_model_are(tmp_path: Path) -> None:
    table = '[embedder]\nmodel = "openai:some-model"\nurl = "http://127.0.0.1:9/v1"\n'
    with pytest.raises(InvalidInput, match=r"dimension = … in the table \[embedder\]"):
        open_embedder(load_settings(toml(tmp_path, table)))
    assert open_embedder(load_settings(toml(tmp_path, table + "dimension = 64\n"))).model.dimension == 64
    for bad in ("0", "-1", "true", '"64"', "70000"):
        with pytest.raises(ConfigError, match="dimension"):
            load_settings(toml(tmp_path, f"{table}dimension = {bad}\n"))


def test_a_variable_says_what_the_settings_file_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_MODEL", "ollama:small")
    monkeypatch.setenv("ENGRAIN_REDACT", "keys")
    found = load_settings(toml(tmp_path, ""))
    assert (found.model, found.redact) == ("ollama:small", ("keys",))
    found = load_settings(toml(tmp_path, '[model]\nname = "ollama:own"\n[privacy]\nredact = ["cards"]\n'))
    assert (found.model, found.redact) == ("ollama:own", ("cards",))
    found = load_settings(toml(tmp_path, '[model]\nname = ""\n[privacy]\nredact = []\n'))
    assert (found.model, found.redact) == (None, ())


def test_the_key_of_a_server_comes_from_the_program_or_a_variable_and_never_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://memory.example.com"
    assert load_settings(url).api_key is None
    monkeypatch.setenv("ENGRAIN_API_KEY", "of-the-variable")
    assert load_settings(url).api_key == "of-the-variable"
    chosen = load_settings(url, {"client": {"api_key": "of-the-program"}})
    assert chosen.api_key == "of-the-program"
    assert "of-the-program" not in repr(chosen)
    with pytest.raises(ConfigError, match="can only be set by a program"):
        load_settings(toml(tmp_path, '[client]\napi_key = "of-the-file"\n'))
