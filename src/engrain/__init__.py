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
    InputChanged,
    InvalidInput,
    LeaseLost,
    NewerStore,
    NotADatabase,
    NotDone,
    NotFound,
    OutcomeUnknown,
    ReadOnlyStore,
    StepAmbiguous,
    StepConcurrent,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TaskClaimed,
    TaskEnded,
    TaskError,
    TaskWaiting,
    TooLarge,
    UnknownKey,
    VersionChanged,
)
from engrain.core.items import Cite, Item, Place, Relation, Source
from engrain.core.notes import Note
from engrain.core.recalled import Hit, LeftOut, Recall
from engrain.core.scope import Scope
from engrain.memory import Memory
from engrain.tasks.effects import Compensate
from engrain.tasks.resumable import Effect, ResumableAgent
from engrain.tasks.retry import Retry
from engrain.tasks.run import AsyncRun, Run
from engrain.version import __version__

__all__ = [
    "AsyncMemory",
    "AsyncRun",
    "BackendMissing",
    "BadText",
    "Cite",
    "Compensate",
    "ConfigError",
    "Conflict",
    "DiskFull",
    "Effect",
    "EmbedderFailed",
    "EmptyText",
    "EngrainError",
    "Forgotten",
    "Hit",
    "InputChanged",
    "InvalidInput",
    "Item",
    "LeaseLost",
    "LeftOut",
    "Memory",
    "NewerStore",
    "NotADatabase",
    "NotDone",
    "NotFound",
    "Note",
    "OutcomeUnknown",
    "Place",
    "ReadOnlyStore",
    "Recall",
    "Relation",
    "ResumableAgent",
    "Retry",
    "Run",
    "Scope",
    "Source",
    "Status",
    "StepAmbiguous",
    "StepConcurrent",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "TaskClaimed",
    "TaskEnded",
    "TaskError",
    "TaskWaiting",
    "TooLarge",
    "UnknownKey",
    "VersionChanged",
    "Why",
    "__version__",
]
