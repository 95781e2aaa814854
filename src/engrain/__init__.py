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
    from engrain.agent.agent import AgentWithMemory, AsyncAgentWithMemory
    from engrain.agent.results import Answer
    from engrain.agent.tools import Tool, tool
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
    from engrain.core.formats.manifests import BackedUp, Restored
    from engrain.core.identity import Scope
    from engrain.core.model.audit import Audited
    from engrain.core.model.chat import ToolCall
    from engrain.core.model.erasure import Hold, Released
    from engrain.core.model.items import Cite, Item, Note, Place, Relation, Source
    from engrain.core.model.messages import Message
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.recall import Hit, LeftOut, Recall, Section, Without
    from engrain.core.model.results import Checked, Forgotten, Maintained, Owned, Status, Why
    from engrain.core.model.retention import TIERS
    from engrain.core.model.sessions import Closing, Event, Opening
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.memory import Memory
    from engrain.memory.async_memory import AsyncMemory
    from engrain.memory.replay import replay_erasures
    from engrain.memory.restore import restore_backup
    from engrain.privacy.erase import Erased, Undone
    from engrain.privacy.receipts import Receipt, Verified
    from engrain.tasks.admin import Timeline
    from engrain.tasks.policies import Compensate, Retry
    from engrain.tasks.run import AsyncRun, Run
    from engrain.tasks.workflow import Effect, ResumableAgent
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.working import WorkingMemory
    from engrain.transfer.export import Exported
    from engrain.transfer.load import Loaded

# Where each name lives. It is imported when first used, so that `import engrain` and `engrain --help` are quick.
_HOMES = {
    "agent.agent": "AgentWithMemory AsyncAgentWithMemory",
    "agent.results": "Answer",
    "agent.tools": "Tool tool",
    "core.errors": "BackendMissing BadFile BadText BeingErased ConfigError Conflict DiskFull EmbedderFailed EmptyText "
    "EngrainError InputChanged InvalidInput LeaseLost ModelFailed NewerStore NotADatabase NotDone "
    "NotFound OlderStore OnHold OutcomeUnknown ReadOnlyStore ServerAway StepAmbiguous StepConcurrent "
    "StepFailed StepNested StoreBusy StoreClosed StoreCorrupt StoreError StoreUnavailable TaskClaimed "
    "TaskEnded TaskError TaskWaiting TooLarge UnknownKey VersionChanged WrongKey",
    "core.formats.manifests": "BackedUp Restored",
    "core.identity": "Scope",
    "core.model.audit": "Audited",
    "core.model.chat": "ToolCall",
    "core.model.erasure": "Hold Released",
    "core.model.items": "Cite Item Note Place Relation Source",
    "core.model.messages": "Message",
    "core.model.procedures": "Procedure",
    "core.model.recall": "Hit LeftOut Recall Section Without",
    "core.model.results": "Checked Forgotten Maintained Owned Status Why",
    "core.model.retention": "TIERS",
    "core.model.sessions": "Closing Event Opening",
    "core.model.tasks": "StepRecord TaskRecord",
    "memory": "Memory",
    "memory.async_memory": "AsyncMemory",
    "memory.replay": "replay_erasures",
    "memory.restore": "restore_backup",
    "privacy.erase": "Erased Undone",
    "privacy.receipts": "Receipt Verified",
    "tasks.admin": "Timeline",
    "tasks.policies": "Compensate Retry",
    "tasks.run": "AsyncRun Run",
    "tasks.workflow": "Effect ResumableAgent",
    "tiers.conversation": "ConversationMemory",
    "tiers.working": "WorkingMemory",
    "transfer.export": "Exported",
    "transfer.load": "Loaded",
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
