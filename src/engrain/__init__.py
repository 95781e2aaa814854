"""engrain: a memory for AI agents that stays.

from engrain import Memory

with Memory("agent.db", user="ana") as memory:
    memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
    print(memory.recall("Which language should the example use?"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

from engrain.version import __version__

if TYPE_CHECKING:
    from engrain.agent.answers import Answer
    from engrain.agent.loop import AgentWithMemory, AsyncAgentWithMemory
    from engrain.agent.tools import Tool, tool
    from engrain.aio import AsyncMemory
    from engrain.core.answers import Forgotten, Owned, Status, Why
    from engrain.core.audit import Audited
    from engrain.core.backups import BackedUp, Restored
    from engrain.core.chat import ToolCall
    from engrain.core.checked import Checked
    from engrain.core.erasure import Hold, Released
    from engrain.core.errors import (
        BackendMissing,
        BadFile,
        BadText,
        BeingErased,
        ConfigError,
        Conflict,
        DiskFull,
        EmbedderFailed,
        EmptyText,
        EngrainError,
        InputChanged,
        InvalidInput,
        LeaseLost,
        ModelFailed,
        NewerStore,
        NotADatabase,
        NotDone,
        NotFound,
        OlderStore,
        OnHold,
        OutcomeUnknown,
        ReadOnlyStore,
        ServerAway,
        StepAmbiguous,
        StepConcurrent,
        StepFailed,
        StepNested,
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
        WrongKey,
    )
    from engrain.core.events import Event
    from engrain.core.items import Cite, Item, Place, Relation, Source
    from engrain.core.journal import StepRecord, TaskRecord
    from engrain.core.maintained import Maintained
    from engrain.core.messages import Message
    from engrain.core.notes import Note
    from engrain.core.procedures import Procedure
    from engrain.core.recalled import Hit, LeftOut, Recall, Section, Without
    from engrain.core.scope import Scope
    from engrain.core.sessions import Closing, Opening
    from engrain.core.tiers import TIERS
    from engrain.lifecycle.erasure.erasing import Erased, Undone
    from engrain.lifecycle.erasure.receipts import Receipt, Verified
    from engrain.lifecycle.exchange.exporting import Exported
    from engrain.lifecycle.exchange.intake import Loaded
    from engrain.memory import Memory
    from engrain.memory.replay import replay_erasures
    from engrain.memory.restore import restore_backup
    from engrain.tasks.care import Timeline
    from engrain.tasks.effects import Compensate
    from engrain.tasks.resumable import Effect, ResumableAgent
    from engrain.tasks.retry import Retry
    from engrain.tasks.run import AsyncRun, Run
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.working import WorkingMemory

# Where each name lives. It is imported when first used, so that `import engrain` and `engrain --help` are quick.
_HOMES = {
    "agent.answers": "Answer",
    "agent.loop": "AgentWithMemory AsyncAgentWithMemory",
    "agent.tools": "Tool tool",
    "aio": "AsyncMemory",
    "core.answers": "Forgotten Owned Status Why",
    "core.checked": "Checked",
    "core.audit": "Audited",
    "core.backups": "BackedUp Restored",
    "core.erasure": "Hold Released",
    "core.journal": "StepRecord TaskRecord",
    "core.maintained": "Maintained",
    "lifecycle.erasure.erasing": "Erased Undone",
    "lifecycle.erasure.receipts": "Receipt Verified",
    "lifecycle.exchange.exporting": "Exported",
    "lifecycle.exchange.intake": "Loaded",
    "tasks.care": "Timeline",
    "core.errors": "BackendMissing BadFile BadText BeingErased ConfigError Conflict DiskFull EmbedderFailed EmptyText "
    "EngrainError InvalidInput ModelFailed NewerStore OlderStore "
    "NotADatabase NotFound OnHold OutcomeUnknown ReadOnlyStore ServerAway StoreBusy StoreClosed StoreCorrupt "
    "StoreError StoreUnavailable TooLarge UnknownKey WrongKey "
    # of durable tasks
    "InputChanged LeaseLost NotDone StepAmbiguous StepConcurrent StepFailed StepNested TaskClaimed TaskEnded TaskError "
    "TaskWaiting VersionChanged",
    "core.items": "Cite Item Place Relation Source",
    "core.events": "Event",
    "core.messages": "Message",
    "core.procedures": "Procedure",
    "core.sessions": "Opening Closing",
    "core.tiers": "TIERS",
    "tiers.conversation": "ConversationMemory",
    "tiers.working": "WorkingMemory",
    "core.chat": "ToolCall",
    "core.notes": "Note",
    "core.recalled": "Hit LeftOut Recall Section Without",
    "core.scope": "Scope",
    "memory": "Memory",
    "memory.replay": "replay_erasures",
    "memory.restore": "restore_backup",
    "tasks.effects": "Compensate",
    "tasks.resumable": "Effect ResumableAgent",
    "tasks.retry": "Retry",
    "tasks.run": "AsyncRun Run",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "TIERS",
    "AgentWithMemory",
    "Answer",
    "AsyncAgentWithMemory",
    "AsyncMemory",
    "AsyncRun",
    "Audited",
    "BackedUp",
    "BackendMissing",
    "BadFile",
    "BadText",
    "BeingErased",
    "Checked",
    "Cite",
    "Closing",
    "Compensate",
    "ConfigError",
    "Conflict",
    "ConversationMemory",
    "DiskFull",
    "Effect",
    "EmbedderFailed",
    "EmptyText",
    "EngrainError",
    "Erased",
    "Event",
    "Exported",
    "Forgotten",
    "Hit",
    "Hold",
    "InputChanged",
    "InvalidInput",
    "Item",
    "LeaseLost",
    "LeftOut",
    "Loaded",
    "Maintained",
    "Memory",
    "Message",
    "ModelFailed",
    "NewerStore",
    "NotADatabase",
    "NotDone",
    "NotFound",
    "Note",
    "OlderStore",
    "OnHold",
    "Opening",
    "OutcomeUnknown",
    "Owned",
    "Place",
    "Procedure",
    "ReadOnlyStore",
    "Recall",
    "Receipt",
    "Relation",
    "Released",
    "Restored",
    "ResumableAgent",
    "Retry",
    "Run",
    "Scope",
    "Section",
    "ServerAway",
    "Source",
    "Status",
    "StepAmbiguous",
    "StepConcurrent",
    "StepFailed",
    "StepNested",
    "StepRecord",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "TaskClaimed",
    "TaskEnded",
    "TaskError",
    "TaskRecord",
    "TaskWaiting",
    "Timeline",
    "TooLarge",
    "Tool",
    "ToolCall",
    "Undone",
    "UnknownKey",
    "Verified",
    "VersionChanged",
    "Why",
    "Without",
    "WorkingMemory",
    "WrongKey",
    "__version__",
    "replay_erasures",
    "restore_backup",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'engrain' has no attribute {name!r}")
    value: object = getattr(import_module(f"engrain.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
