"""Open the stores, servers and models that the settings name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engrain.config import Settings, load_settings
from engrain.core.clock import Clock, system_clock
from engrain.core.errors import BackendMissing, ConfigError
from engrain.core.identity import Scope
from engrain.core.tokens import check_counter, estimate_tokens
from engrain.ports import Model, Services
from engrain.ports.items import ItemStore
from engrain.ports.reranker import Reranker
from engrain.ports.search import Embedder, VectorServer
from engrain.ports.storage import Folder, Movable
from engrain.stores.composite import CompositeStore, ErasureGuard

if TYPE_CHECKING:
    from engrain.core.model.rows import RowKind
    from engrain.core.secrets.redact import RedactFunction
    from engrain.stores.redis import RedisStore
    from engrain.stores.redis.store import RedisTransfer
    from engrain.stores.vectors.outbox_index import OutboxVectorIndex

REDIS = ("redis", "rediss")
VECTOR_SERVERS = ("qdrant", "chroma")
EMBEDDERS = ("local", "openai", "voyage", "sentence-transformers")


def open_services(
    location: str | os.PathLike[str] | None,
    *,
    embedder: Embedder | str | None = None,
    model: Model | str | None = None,
    key: str | None = None,
    clock: Clock = system_clock,
    read_only: bool = False,
    tables: Mapping[str, Mapping[str, Any]] | None = None,
) -> Services:
    """Open everything that a memory needs."""
    chosen = load_settings(location, tables)
    count_tokens = check_counter(chosen.count_tokens or estimate_tokens)
    read_only = read_only or chosen.read_only
    if key is not None:
        chosen = replace(chosen, key=key)
    if isinstance(embedder, str):
        chosen = replace(chosen, embedder=embedder)
    ready = open_embedder(chosen) if embedder is None or isinstance(embedder, str) else embedder
    with ExitStack() as opened:
        store = opened.enter_context(closing(_open_store(chosen, clock, read_only)))
        servers: dict[str, RedisStore] = {}
        for url in dict.fromkeys(filter(None, (chosen.episodic, chosen.tasks, chosen.sessions))):
            servers[url] = opened.enter_context(closing(_open_redis(url, clock, read_only)))
            servers[url].guard = ErasureGuard(getattr(store, "erasing", None))
        index = _open_vectors(chosen.vectors, store, ready, clock) if chosen.vectors and not read_only else None
        if index:
            opened.enter_context(closing(index))
        services = Services(
            store,
            index or store,
            store,
            store,
            ready,
            clock,
            count_tokens,
            episodes=servers[chosen.episodic].episodes if chosen.episodic else getattr(store, "episodes", None),
            journal=servers[chosen.tasks].journal if chosen.tasks else store.journal,
            model=(small := _open_model(model, chosen)),
            reranker=_open_reranker(chosen, small),
            reranker_seconds=float(chosen.reranker_timeout),
            outcomes=getattr(store, "outcomes", None),
            records=getattr(store, "records", None),
            same_store=chosen.episodic is None and hasattr(store, "episodes"),
            servers=(*servers.values(), *((index,) if index else ())),
            feed=index,
            state=servers[chosen.sessions].state if chosen.sessions and not read_only else None,
            policies=chosen.lifecycle,
            previous_embedder=_open_previous_embedder(chosen, ready),
            folder=_make_folder_opener(chosen.lifecycle.mirror),
            open_folder=open_folder,
            erasing=getattr(store, "erasing", None),
            audit=getattr(store, "audit", None),
            redact=_open_redactor(chosen.redact),
            rows=_compose_stores(chosen, store, servers),
            read_only=read_only,
        )
        opened.pop_all()
    return services


def open_whole_store(url: str | os.PathLike[str], *, create: bool = True) -> Movable:
    """Open every store of the settings as one, to copy or change it as a whole.

    Vector servers and the working memory of sessions are left out: they hold only copies. Without `create` a missing
    Postgres schema is not created.
    """
    chosen = load_settings(url)
    read_only = not create and chosen.store.startswith(("postgresql://", "postgres://"))
    with ExitStack() as opened:
        store: Movable = opened.enter_context(closing(_open_store(chosen, system_clock, read_only=read_only)))
        servers: dict[str, RedisStore] = {}
        for url in dict.fromkeys(filter(None, (chosen.episodic, chosen.tasks))):
            servers[url] = opened.enter_context(closing(_open_redis(url, system_clock, read_only=False)))
        if chosen.tasks:
            _ = servers[chosen.tasks].journal  # raises if the server may lose tasks
        close = opened.pop_all().close
    return _compose_stores(chosen, store, servers, close) or store


def _compose_stores(
    chosen: Settings, store: Movable, servers: Mapping[str, RedisStore], close: Callable[[], None] = lambda: None
) -> Movable | None:
    """Join the store and its Redis servers; None if there is only one store."""
    parts: dict[RowKind, RedisTransfer] = {}
    if chosen.episodic:
        parts["episode"] = servers[chosen.episodic].moving
    if chosen.tasks:
        parts |= dict.fromkeys(("task", "step", "event"), servers[chosen.tasks].moving)
    return CompositeStore(store, parts, close) if parts else None


def open_folder(path: str | os.PathLike[str]) -> Folder:
    from engrain.stores.folder import FolderFiles

    return FolderFiles(path)


def _make_folder_opener(pattern: str) -> Callable[[Scope], Folder] | None:
    if not pattern:
        return None
    from engrain.core.markdown.layout import fill_folder_pattern

    return lambda scope: open_folder(fill_folder_pattern(pattern, scope))


def open_embedder(chosen: Settings) -> Embedder:
    kind, _, name = chosen.embedder.partition(":")
    if kind not in EMBEDDERS or (kind != "local" and not name):
        known = ", ".join(kind if kind == "local" else f"{kind}:MODEL" for kind in EMBEDDERS)
        raise ConfigError(f"unknown embedder {chosen.embedder!r}. Known: {known}.")
    if kind in ("local", "sentence-transformers"):
        from engrain.providers.local import SentenceTransformersEmbedder, local_embedder

        return local_embedder() if kind == "local" else SentenceTransformersEmbedder(name)
    from engrain.providers.embeddings_http import OpenAIEmbedder, VoyageEmbedder

    served = OpenAIEmbedder if kind == "openai" else VoyageEmbedder
    return served(name, dimension=chosen.dimension, base_url=chosen.embedder_url)


def _open_previous_embedder(chosen: Settings, now: Embedder) -> Embedder | None:
    before: Embedder | str | None = chosen.embedder_before
    if isinstance(before, str):
        before = open_embedder(replace(chosen, embedder=before, embedder_url=None, dimension=None)) if before else None
    return before if before is not None and before.model.key != now.model.key else None


def _open_model(model: Model | str | None, chosen: Settings) -> Model | None:
    model = model or chosen.model
    if not isinstance(model, str):
        return model
    from engrain.providers.chat import open_model

    return open_model(model, chosen.model_url)


def _open_reranker(chosen: Settings, model: Model | None) -> Reranker | None:
    named: Reranker | str | None = chosen.reranker
    if named is None:
        return None
    if not isinstance(named, str):
        if not isinstance(getattr(named, "name", None), str) or not callable(getattr(named, "score", None)):
            raise ConfigError(f"a reranker has a name and a method score(query, texts): {named!r} has not both.")
        return named
    from engrain.providers.rerankers import open_reranker

    return open_reranker(named, chosen.reranker_url, chosen.reranker_timeout, model)


def _open_store(chosen: Settings, clock: Clock, read_only: bool):  # type: ignore[no-untyped-def]
    scheme, found, rest = chosen.store.partition("://")
    if not found or scheme in ("sqlite", "file"):
        from engrain.stores.sqlite import SqliteStore

        path = rest if found else chosen.store
        where = path if path == ":memory:" else Path(path).expanduser()
        return SqliteStore(where, clock=clock, key=chosen.key, read_only=read_only, cache_bytes=chosen.cache_bytes)
    if chosen.key is not None:
        raise ConfigError(f"a key encrypts an SQLite file; a {scheme} store is encrypted by its own server or disk.")
    if scheme in ("postgresql", "postgres"):
        _require("the Postgres backend", "postgres", "psycopg", "psycopg_pool")
        from engrain.stores.postgres import PostgresStore

        return PostgresStore(chosen.store, clock=clock, read_only=read_only)
    if scheme in REDIS:
        raise ConfigError(
            "Redis keeps episodes, tasks and session state, but no items. Name it and a store of items in a .toml "
            f'file: [stores] default = "agent.db" (or postgresql://…), episodic = "{scheme}://…", tasks = "{scheme}://…".'
        )
    if scheme in VECTOR_SERVERS:
        raise ConfigError(
            f"a {scheme} server only searches vectors. Name it and a store of items in a .toml file: "
            f'[stores] default = "agent.db" (or postgresql://…), vectors = "{scheme}://…".'
        )
    from importlib.metadata import entry_points

    for plugin in entry_points(group="engrain.stores", name=scheme):
        return plugin.load()(chosen.store, clock=clock, read_only=read_only)
    raise ConfigError(f"unknown kind of store {scheme!r}. Use a path such as agent.db, or postgresql://….")


def _open_redactor(wanted: object) -> RedactFunction | None:
    if wanted == ():
        return None
    from engrain.core.secrets.redact import make_redactor

    return make_redactor(wanted)


def _open_redis(url: str, clock: Clock, read_only: bool) -> RedisStore:
    if url.partition("://")[0] not in REDIS:
        raise ConfigError(
            f"episodic, tasks and sessions in [stores] take a redis:// URL, not {url.partition('://')[0]!r}."
        )
    _require("the Redis backend", "redis", "redis")
    from engrain.stores.redis import RedisStore

    return RedisStore(url, clock=clock, read_only=read_only)


def _require(what: str, extra: str, *modules: str) -> None:
    try:
        for module in modules:
            import_module(module)
    except ImportError as exc:
        raise BackendMissing(what, extra) from exc


def _open_vectors(url: str, store: ItemStore, embedder: Embedder, clock: Clock) -> OutboxVectorIndex:
    """Open the vector server. A read-only store does without: it searches by itself."""
    scheme = url.partition("://")[0]
    if scheme not in VECTOR_SERVERS:
        raise ConfigError(f"vectors in [stores] takes a qdrant:// or chroma:// URL, not {scheme!r}.")
    key = os.environ.get(f"{scheme.upper()}_API_KEY") or None
    try:
        from engrain.stores.vectors.clients import acquire_client, release_client
        from engrain.stores.vectors.outbox_index import OutboxVectorIndex

        server = acquire_client(f"{url} {key}", lambda: _open_vector_server(scheme, url, key))
    except ModuleNotFoundError as exc:
        raise BackendMissing(f"the {scheme.capitalize()} backend", scheme) from exc
    return OutboxVectorIndex(store, server, embedder, clock, leave=lambda: release_client(f"{url} {key}"))


def _open_vector_server(scheme: str, url: str, key: str | None) -> VectorServer:
    if scheme == "qdrant":
        from engrain.stores.vectors.qdrant import QdrantServer

        return QdrantServer(url, key)
    from engrain.stores.vectors.chroma import ChromaServer

    return ChromaServer(url, key)
