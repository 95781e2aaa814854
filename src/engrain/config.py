"""Read the settings from a URL, a TOML file, the environment and the program."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engrain.core.errors import ConfigError, InvalidInput, NotFound, UnknownKey
from engrain.core.model.retention import Policies, check_policies
from engrain.ports.plain_files import read_plain_text

DEFAULT_STORE = "engrain.db"
STORE_VARIABLE = "ENGRAIN_STORE"
MODEL_VARIABLE = "ENGRAIN_MODEL"
KEY_VARIABLE = "ENGRAIN_KEY"
API_KEY_VARIABLE = "ENGRAIN_API_KEY"
REDACT_VARIABLE = "ENGRAIN_REDACT"
DEFAULT_CACHE_BYTES = 1 << 30
MAX_DIMENSIONS = 65_536
MAX_TIMEOUT = 3_600
# tomllib takes a minute for a key of 100,000 parts.
_MAX_KEY_PARTS = 64
_LONG_KEY = re.compile(rf"^(?:[^=\n#.]*+\.){{{_MAX_KEY_PARTS}}}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Settings:
    """`store` is a path or a URL; `embedder` is "local", "openai:MODEL", "voyage:MODEL" or
    "sentence-transformers:MODEL".

    `episodic` and `tasks` are URLs of Redis servers that keep episodes and tasks instead of `store`. `sessions` is the
    URL of a Redis server for the working memory of sessions.
    `vectors` is the URL of a Qdrant or Chroma server that searches vectors instead of `store`.
    `model` is a small chat model for summaries and facts: "anthropic", "openai:MODEL", "ollama:MODEL"; None for none.
    `reranker` orders the best hits of a thorough recall: "cohere:MODEL", "voyage:MODEL", "jina:MODEL",
    "cross-encoder:MODEL", or "model" for the small chat model. It is waited for `reranker_timeout` seconds.
    `key` encrypts an SQLite file; it comes from ENGRAIN_KEY or the program, never from a file.
    `dimension` is that of the embedder's vectors; it is needed only for unknown models.
    `embedder_before` made the stored vectors. Search uses it until `embedder` has embedded everything again.
    `lifecycle` sets how long data is kept. `redact` names what is removed from every text before it is stored.
    With `read_only` nothing is written. `count_tokens` counts the tokens of a text. A program may pass functions and
    objects where a file has names.
    `timeout` and `retries` are those of requests to an engrain server: seconds, and the attempts after the first.
    `api_key` is sent to that server; like `key`, it never comes from a file.
    `cache_bytes` limits the memory of search.
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
    reranker: Any = None
    reranker_url: str | None = None
    reranker_timeout: float = 5
    cache_bytes: int = DEFAULT_CACHE_BYTES
    key: str | None = field(default=None, repr=False)
    embedder_before: Any = None
    lifecycle: Policies = field(default_factory=Policies)
    redact: Any = ()
    count_tokens: Callable[[str], int] | None = None
    read_only: bool = False
    timeout: float = 30
    retries: int = 3
    api_key: str | None = field(default=None, repr=False)

    @property
    def file(self) -> Path | None:
        """The file of an SQLite store; None for a server."""
        scheme, found, rest = self.store.partition("://")
        return None if found and scheme not in ("sqlite", "file") else Path(rest if found else scheme).expanduser()


_STORE_FIELDS = ("episodic", "tasks", "sessions", "vectors", "cache_bytes", "read_only", "key")
# The field of Settings for each key of a table.
_TABLES: Mapping[str, Mapping[str, str]] = {
    "stores": {"default": "store", **{name: name for name in _STORE_FIELDS}},
    "embedder": {"model": "embedder", "url": "embedder_url", "dimension": "dimension", "before": "embedder_before"},
    "model": {"name": "model", "url": "model_url"},
    "reranker": {"use": "reranker", "url": "reranker_url", "timeout": "reranker_timeout"},
    "privacy": {"redact": "redact"},
    "tokens": {"count": "count_tokens"},
    "client": {"timeout": "timeout", "retries": "retries", "api_key": "api_key"},
}
# A program may pass these as objects or functions.
_OBJECTS = ("before", "use", "redact", "count", "key", "api_key")
_TYPES: Mapping[str, type] = {
    "read_only": bool, "cache_bytes": int, "dimension": int, "redact": list,
    "timeout": float, "retries": int,
}  # fmt: skip  # or str


_TYPE_NAMES: Mapping[type, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list",
}  # fmt: skip


def load_settings(
    url: str | os.PathLike[str] | None = None, tables: Mapping[str, Mapping[str, Any]] | None = None
) -> Settings:
    """Load settings for a path, a URL or a .toml file; without one, for ENGRAIN_STORE, or engrain.db in this folder.

    ENGRAIN_MODEL and ENGRAIN_REDACT apply unless a .toml file sets the same. `tables` come from the program, named as
    in a .toml file; they override both.
    """
    if url is not None and not isinstance(url, (str, os.PathLike)):
        raise ConfigError(f"a store is a path or a URL, not {type(url).__name__}.")
    where = os.fspath(url) if url is not None else os.environ.get(STORE_VARIABLE, DEFAULT_STORE)
    if not where or "\x00" in where:
        raise ConfigError(f"{where!r} is not a path or a URL of a store.")
    found = read_toml(Path(where)) if where.endswith(".toml") else replace(_read_environment(), store=where)
    return apply_tables(found, tables) if tables is not None else found


def read_toml(path: Path) -> Settings:
    try:
        text = read_plain_text(path)
    except NotFound as exc:
        raise ConfigError(f"there is no settings file {path}.") from exc
    except InvalidInput as exc:
        raise ConfigError(str(exc)) from exc
    try:
        if _LONG_KEY.search(text):
            raise ConfigError(f"{path} cannot be read as TOML: a key of it has more than {_MAX_KEY_PARTS} parts.")
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as exc:  # Python refuses to read a number of 4,300 digits
        raise ConfigError(f"{path} cannot be read as TOML: {exc}.") from exc
    lifecycle = tables.pop("lifecycle", {})
    if not isinstance(lifecycle, dict):
        raise ConfigError(f"{path}: lifecycle must be a table, [lifecycle].")
    values, environment = _read_tables(str(path), tables), _read_environment()
    values["model"] = values.get("model", environment.model) or None  # name = "" means none, despite the variable
    for name in ("backup_folder", "mirror"):
        if isinstance(lifecycle.get(name), str) and lifecycle[name]:
            lifecycle[name] = _resolve_path(path, lifecycle[name])
    values["store"] = _resolve_path(path, values.get("store", DEFAULT_STORE))
    return replace(environment, **values, lifecycle=check_policies(lifecycle, f"{path}, [lifecycle]"))


def apply_tables(found: Settings, tables: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Override settings with the values of the program."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f'settings are tables, such as {{"lifecycle": {{…}}}}, not {type(tables).__name__}.')
    own = dict(tables)
    lifecycle = own.pop("lifecycle", None)
    values = _read_tables("settings", own, objects=True)
    if lifecycle is not None:
        values["lifecycle"] = check_policies(lifecycle, "settings, [lifecycle]")
    return replace(found, **values)


def _read_tables(where: str, tables: Mapping[str, Any], objects: bool = False) -> dict[str, Any]:
    """The values of all tables, by the field names of Settings."""
    found: dict[str, Any] = {}
    for table, values in tables.items():
        if table not in _TABLES or not isinstance(values, Mapping):
            raise UnknownKey(f"{where}: unknown table [{table}]. Known: {', '.join((*_TABLES, 'lifecycle'))}.")
        for key, value in values.items():
            if key not in _TABLES[table]:
                raise UnknownKey(f"{where}: unknown key {key!r} in [{table}]. Known: {', '.join(_TABLES[table])}.")
            is_object = objects and key in _OBJECTS
            found[_TABLES[table][key]] = value if is_object else _check_type(where, table, key, value)
    return found


def _resolve_path(path: Path, named: str) -> str:
    """Resolve a path in a settings file relative to that file, wherever the program was started."""
    if "\x00" in named:
        raise ConfigError(f"{path}: {named!r} is not a path: no path has a null character.")
    scheme, found, rest = named.rpartition("://")
    if scheme not in ("", "sqlite", "file") or rest in ("", ":memory:"):
        return named
    return f"{scheme}{found}{os.path.abspath(path.parent / os.path.expanduser(rest))}"


def _read_environment() -> Settings:
    names = (name.strip() for name in os.environ.get(REDACT_VARIABLE, "").split(","))
    variables = (MODEL_VARIABLE, KEY_VARIABLE, API_KEY_VARIABLE)
    model, key, api_key = (os.environ.get(variable) or None for variable in variables)
    return Settings(model=model, key=key, redact=tuple(filter(None, names)), api_key=api_key)


def _check_type(path: str, table: str, key: str, value: object) -> object:
    if key in ("count", "key", "api_key"):
        raise ConfigError(f"{path}: {key!r} in [{table}] can only be set by a program, not in a file.")
    wanted = _TYPES.get(key, str)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_TIMEOUT:
        value = float(value)
    if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
        raise ConfigError(f"{path}: {key!r} in [{table}] must be {_TYPE_NAMES[wanted]}, not {value!r}.")
    if key == "dimension" and not 0 < value <= MAX_DIMENSIONS:  # type: ignore[operator]
        raise ConfigError(f"{path}: dimension in [embedder] must be from 1 to {MAX_DIMENSIONS:,}, not {value!r}.")
    if key in ("timeout", "retries") and not 0 <= value <= MAX_TIMEOUT:  # type: ignore[operator]
        raise ConfigError(f"{path}: {key} in [{table}] must be from 0 to {MAX_TIMEOUT:,}, not {value!r}.")
    if key == "cache_bytes" and value < 0:  # type: ignore[operator]
        raise ConfigError(f"{path}: cache_bytes in [stores] must be 0 or more, not {value!r}.")
    return tuple(value) if isinstance(value, list) else value
