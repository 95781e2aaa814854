"""Settings: read once, at the rim, from a URL, a TOML file or the environment."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from engrain.core.errors import ConfigError, UnknownKey
from engrain.core.model.retention import Policies, check_policies

SqliteEngine = Literal["auto", "apsw", "stdlib"]

DEFAULT_STORE = "engrain.db"
STORE_VARIABLE = "ENGRAIN_STORE"
MODEL_VARIABLE = "ENGRAIN_MODEL"
KEY_VARIABLE = "ENGRAIN_KEY"
REDACT_VARIABLE = "ENGRAIN_REDACT"
DEFAULT_CACHE = 1 << 30
MOST_DIMENSIONS = 65_536


@dataclass(frozen=True, slots=True)
class Settings:
    """`store` is a path or a URL; `embedder` is "local", "openai:MODEL", "voyage:MODEL" or
    "sentence-transformers:MODEL".

    `episodic` and `tasks` are URLs of Redis servers that hold those instead of `store`; `sessions` is that of one which
    keeps what a session has at hand: working memory and the newest messages.
    `vectors` is the URL of a Qdrant or Chroma server that searches vectors in place of `store`.
    `model` is a small chat model for summaries and facts: "anthropic", "openai:MODEL", "ollama:MODEL"; None for none.
    `key` encrypts an SQLite file; it comes from ENGRAIN_KEY or the program, never from a file.
    `dimension` is that of the embedder's vectors, where its name does not tell.
    `embedder_before` is the embedder that made the stored vectors, searched by until `embedder` has made all anew.
    `lifecycle` says how long things are kept. `redact` names what is taken out of every text before it is kept.
    `cache_bytes` bounds the memory that search may hold. `engine` is "auto", "apsw" or "stdlib".
    """

    store: str = DEFAULT_STORE
    episodic: str | None = None
    tasks: str | None = None
    sessions: str | None = None
    vectors: str | None = None
    embedder: str = "local"
    embedder_url: str | None = None
    dimension: int | None = None
    model: str | None = None
    model_url: str | None = None
    cache_bytes: int = DEFAULT_CACHE
    engine: SqliteEngine = "auto"
    key: str | None = field(default=None, repr=False)
    embedder_before: str | None = None
    lifecycle: Policies = field(default_factory=Policies)
    redact: tuple[str, ...] = ()


_TABLES: Mapping[str, Mapping[str, str]] = {
    "stores": {
        "default": "store",
        "episodic": "episodic",
        "tasks": "tasks",
        "sessions": "sessions",
        "vectors": "vectors",
        "cache_bytes": "cache_bytes",
        "engine": "engine",
    },
    "embedder": {"model": "embedder", "url": "embedder_url", "dimension": "dimension", "before": "embedder_before"},
    "model": {"name": "model", "url": "model_url"},
    "privacy": {"redact": "redact"},
}


def settings(url: str | os.PathLike[str] | None = None) -> Settings:
    """From a path, a URL, or the path of a .toml file; with none, from ENGRAIN_STORE, else engrain.db right here.
    The model and what is redacted are those of ENGRAIN_MODEL and ENGRAIN_REDACT, unless a .toml file says."""
    if url is not None and not isinstance(url, (str, os.PathLike)):
        raise ConfigError(f"a store is a path or a URL, not {type(url).__name__}.")
    where = os.fspath(url) if url is not None else os.environ.get(STORE_VARIABLE, DEFAULT_STORE)
    if not where or "\x00" in where:
        raise ConfigError(f"{where!r} is not a path or a URL of a store.")
    if where.endswith(".toml"):
        return from_toml(Path(where))
    return Settings(store=where, model=_model(), key=_key(), redact=_redact())


def from_toml(path: Path) -> Settings:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise ConfigError(f"there is no settings file {path}.") from exc
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise ConfigError(f"{path} cannot be read as TOML: {exc}.") from exc
    given: dict[str, Any] = {}
    upkeep = tables.pop("lifecycle", {})
    if not isinstance(upkeep, dict):
        raise ConfigError(f"{path}: lifecycle must be a table, [lifecycle].")
    for table, values in tables.items():
        if table not in _TABLES or not isinstance(values, dict):
            raise UnknownKey(f"{path}: unknown table [{table}]. Known: {', '.join((*_TABLES, 'lifecycle'))}.")
        for key, value in values.items():
            if key not in _TABLES[table]:
                raise UnknownKey(f"{path}: unknown key {key!r} in [{table}]. Known: {', '.join(_TABLES[table])}.")
            given[_TABLES[table][key]] = _typed(path, table, key, value)
    given.setdefault("redact", _redact())
    given["model"] = given.get("model", _model()) or None  # name = "": none, whatever the variable says
    for name in ("backup_folder", "mirror"):
        if isinstance(upkeep.get(name), str) and upkeep[name]:
            upkeep[name] = _beside(path, upkeep[name])
    given["store"] = _beside(path, given.get("store", DEFAULT_STORE))
    return Settings(**given, key=_key(), lifecycle=check_policies(upkeep, f"{path}, [lifecycle]"))


def _beside(path: Path, named: str) -> str:
    """A path in a settings file is seen from that file, wherever the program was started."""
    scheme, found, rest = named.rpartition("://")
    if scheme not in ("", "sqlite", "file") or rest in ("", ":memory:"):
        return named
    return f"{scheme}{found}{os.path.abspath(path.parent / Path(rest).expanduser())}"


def _model() -> str | None:
    return os.environ.get(MODEL_VARIABLE) or None


def _redact() -> tuple[str, ...]:
    return tuple(name.strip() for name in os.environ.get(REDACT_VARIABLE, "").split(",") if name.strip())


def _key() -> str | None:
    return os.environ.get(KEY_VARIABLE) or None


def _typed(path: Path, table: str, key: str, value: object) -> object:
    if key == "redact" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return tuple(value)
    wanted: type = int if key in ("cache_bytes", "dimension") else list if key == "redact" else str
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigError(f"{path}: {key!r} in [{table}] must be {wanted.__name__}, not {value!r}.")
    if key == "dimension" and not 0 < value <= MOST_DIMENSIONS:  # type: ignore[operator]
        raise ConfigError(f"{path}: dimension in [embedder] must be from 1 to {MOST_DIMENSIONS:,}, not {value!r}.")
    if key == "engine" and value not in get_args(SqliteEngine):
        raise ConfigError(f"{path}: engine must be one of {', '.join(get_args(SqliteEngine))}, not {value!r}.")
    return value
