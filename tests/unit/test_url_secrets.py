"""A password in a URL is shown nowhere: not in errors and their causes, representations or logs."""

from __future__ import annotations

import logging
import traceback
import warnings
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.core.errors import ConfigError, EmbedderFailed, EngrainError, StoreUnavailable
from engrain.core.secrets.urls import hide_secrets
from engrain.providers import http
from engrain.providers.embeddings_http import OpenAIEmbedder
from engrain.stores.redis.store import read_server_info

SECRETS = ["hunter2", "hun/ter2", "hun#ter2", "hun?ter2", "hun@ter2", "hun:ter2", "hun%zzter2", "[hunter2", "hun ter2"]
PLACES = [
    "{scheme}://ana:{secret}@localhost:1/db?timeout=0.1&patience=0",
    "{scheme}://ana:{secret}@localhost:port/db",
    "{scheme}://ana:{secret}@[::1/db",
    "{scheme}://:{secret}@localhost:1?timeout=0.1&patience=0",
    "{scheme}://localhost:1/?timeout=0.1&patience=0&password={secret}",
]


def tells(exc: BaseException, secret: str) -> bool:
    told = "".join(traceback.format_exception(exc)) + repr(exc)
    return any(part in told for part in (secret, "ter2"))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheme", ["postgresql", "redis", "qdrant", "chroma"])
def test_no_error_of_a_store_tells_a_password(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str, place: str, secret: str
) -> None:
    url = place.format(scheme=scheme, secret=secret)
    assert "ter2" not in hide_secrets(url)
    role = {"postgresql": "default", "redis": "tasks"}.get(scheme, "vectors")
    quoted = url.replace("\\", "\\\\")
    stores = {"default": str(tmp_path / "a.db"), role: quoted}
    settings = tmp_path / "a.toml"
    settings.write_text("[stores]\n" + "".join(f'{name} = "{value}"\n' for name, value in stores.items()))
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with Store(settings, embedder=HashEmbedder(), background=False) as store:
                assert "ter2" not in f"{store!r} {store.status()} {store.doctor()}"
        except EngrainError as exc:
            assert not tells(exc, secret)  # noqa: PT017
    assert "ter2" not in caplog.text + "".join(str(one.message) for one in warned)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_error_of_an_embedder_tells_a_password(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    for url in (f"http://ana:{secret}@127.0.0.1:1/v1", f"http://ana:{secret}@host:port/v1", f"ftp://ana:{secret}@x/"):
        with caplog.at_level(logging.DEBUG), pytest.raises((ConfigError, EmbedderFailed)) as caught:
            OpenAIEmbedder("small", dimension=3, base_url=url, api_key="k").embed(["Tea."], "query")
        assert not tells(caught.value, secret)
    assert "ter2" not in caplog.text


def test_a_store_shows_its_location_without_a_password(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.db", embedder=HashEmbedder()) as memory:
        memory.store._location = "postgresql://ana:hunter2@localhost/db"
        assert repr(memory.store) == "Store('postgresql://ana@localhost/db')"


def test_a_path_is_shown_as_it_is() -> None:
    for path in ("/home/ana@work/agent.db", "agent.db", "sqlite:///C:/ana@work/agent.db"):
        assert hide_secrets(path) == path
    assert "hunter2" not in hide_secrets("host=localhost password=hunter2 dbname=x")


def test_a_redis_that_restarts_while_it_is_opened_is_unavailable() -> None:
    class Restarting:
        def each_server(self, *words: str, patience: float = 0.0) -> list[dict[str, str]]:
            if words[0] == "INFO":
                return [{"redis_version": "7.0.0"}]
            raise StoreUnavailable("Redis is loading the dataset in memory.")

    with pytest.raises(StoreUnavailable, match="loading"):
        read_server_info(Restarting())  # type: ignore[arg-type]
