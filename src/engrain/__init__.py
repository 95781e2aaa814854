"""engrain: a memory for AI agents that stays.

    from engrain import Memory

    with Memory("agent.db", user="ana") as memory:
        memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
        print(memory.recall("Which language should the example use?"))
"""

from engrain.aio import AsyncMemory
from engrain.core.answers import Forgotten, Status, Why
from engrain.core.errors import (
    BackendMissing,
    BadText,
    ConfigError,
    Conflict,
    DiskFull,
    EmbedderFailed,
    EmptyText,
    EngrainError,
    InvalidInput,
    NewerStore,
    NotADatabase,
    NotFound,
    OutcomeUnknown,
    ReadOnlyStore,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TooLarge,
    UnknownKey,
)
from engrain.core.items import Cite, Item, Place, Relation, Source
from engrain.core.notes import Note
from engrain.core.recalled import Hit, LeftOut, Recall
from engrain.core.scope import Scope
from engrain.memory import Memory
from engrain.version import __version__

__all__ = [
    "AsyncMemory",
    "BackendMissing",
    "BadText",
    "Cite",
    "ConfigError",
    "Conflict",
    "DiskFull",
    "EmbedderFailed",
    "EmptyText",
    "EngrainError",
    "Forgotten",
    "Hit",
    "InvalidInput",
    "Item",
    "LeftOut",
    "Memory",
    "NewerStore",
    "NotADatabase",
    "NotFound",
    "Note",
    "OutcomeUnknown",
    "Place",
    "ReadOnlyStore",
    "Recall",
    "Relation",
    "Scope",
    "Source",
    "Status",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "TooLarge",
    "UnknownKey",
    "Why",
    "__version__",
]
