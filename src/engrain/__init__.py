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
    from engrain.agent.results import AgentReply
    from engrain.agent.tools import Tool, tool
    from engrain.core.errors import (
        BackendMissing,
        BackendUnavailableWarning,
        BadFile,
        BadText,
        BeingErased,
        ConfigError,
        Conflict,
        DiskFull,
        EffectNotPerformed,
        EmbedderFailed,
        EmptyText,
        EngrainError,
        InputChanged,
        InvalidInput,
        LeaseLost,
        ModelFailed,
        NewerStore,
        NotADatabase,
        NotFound,
        OlderStore,
        OnHold,
        OutcomeUnknown,
        ReadOnlyStore,
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
    from engrain.core.formats.manifests import BackupInfo, RestoreResult
    from engrain.core.identity import Scope
    from engrain.core.model.audit import AuditResult
    from engrain.core.model.chat import ToolCall
    from engrain.core.model.erasure import Hold, HoldRelease
    from engrain.core.model.items import Citation, Item, Note, Relation, SessionPosition, Source
    from engrain.core.model.messages import Message
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.recall import Degraded, Hit, Omitted, Recall, Section
    from engrain.core.model.results import CheckResult, Explanation, ForgetResult, MaintenanceReport, MemoryInfo, Status
    from engrain.core.model.retention import TIERS
    from engrain.core.model.sessions import Event, SessionEnd, SessionStart
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.memory import Memory
    from engrain.memory.async_memory import AsyncMemory
    from engrain.memory.receipts import read_receipts
    from engrain.memory.replaying import replay_erasures
    from engrain.memory.restoring import restore_backup
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult
    from engrain.tasks.admin import Timeline
    from engrain.tasks.policies import Compensate, Retry
    from engrain.tasks.run import AsyncRun, Run
    from engrain.tasks.workflow import Effect, ResumableAgent
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.working import WorkingMemory
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult

# Where each name lives. It is imported when first used, so that `import engrain` and `engrain --help` are quick.
_HOMES = {
    "agent.agent": "AgentWithMemory AsyncAgentWithMemory",
    "agent.results": "AgentReply",
    "agent.tools": "Tool tool",
    "core.errors": "BackendMissing BadFile BadText BeingErased ConfigError Conflict DiskFull EmbedderFailed EmptyText "
    "EngrainError InputChanged InvalidInput LeaseLost ModelFailed NewerStore NotADatabase NotDone "
    "NotFound OlderStore OnHold OutcomeUnknown ReadOnlyStore ServerAway StepAmbiguous StepConcurrent "
    "StepFailed StepNested StoreBusy StoreClosed StoreCorrupt StoreError StoreUnavailable TaskClaimed "
    "TaskEnded TaskError TaskWaiting TooLarge UnknownKey VersionChanged WrongKey",
    "core.formats.manifests": "BackedUp Restored",
    "core.identity": "Scope",
    "core.model.audit": "AuditResult",
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
    "memory.receipts": "read_receipts",
    "memory.replaying": "replay_erasures",
    "memory.restoring": "restore_backup",
    "privacy.erase": "Erased Undone",
    "privacy.receipts": "Receipt Verified",
    "tasks.admin": "Timeline",
    "tasks.policies": "Compensate Retry",
    "tasks.run": "AsyncRun Run",
    "tasks.workflow": "Effect ResumableAgent",
    "tiers.conversation": "ConversationMemory",
    "tiers.working": "WorkingMemory",
    "transfer.export": "ExportResult",
    "transfer.load": "LoadResult",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "TIERS",
    "AgentWithMemory",
    "AgentReply",
    "AsyncAgentWithMemory",
    "AsyncMemory",
    "AsyncRun",
    "AuditResult",
    "BackupInfo",
    "BackendMissing",
    "BadFile",
    "BadText",
    "BeingErased",
    "CheckResult",
    "Citation",
    "SessionEnd",
    "Compensate",
    "ConfigError",
    "Conflict",
    "ConversationMemory",
    "DiskFull",
    "Effect",
    "EmbedderFailed",
    "EmptyText",
    "EngrainError",
    "ErasureResult",
    "Event",
    "ExportResult",
    "ForgetResult",
    "Hit",
    "Hold",
    "InputChanged",
    "InvalidInput",
    "Item",
    "LeaseLost",
    "Omitted",
    "LoadResult",
    "MaintenanceReport",
    "Memory",
    "Message",
    "ModelFailed",
    "NewerStore",
    "NotADatabase",
    "EffectNotPerformed",
    "NotFound",
    "Note",
    "OlderStore",
    "OnHold",
    "SessionStart",
    "OutcomeUnknown",
    "MemoryInfo",
    "SessionPosition",
    "Procedure",
    "ReadOnlyStore",
    "Recall",
    "Receipt",
    "Relation",
    "HoldRelease",
    "RestoreResult",
    "ResumableAgent",
    "Retry",
    "Run",
    "Scope",
    "Section",
    "BackendUnavailableWarning",
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
    "UndoResult",
    "UnknownKey",
    "VerificationResult",
    "VersionChanged",
    "Explanation",
    "Degraded",
    "WorkingMemory",
    "WrongKey",
    "__version__",
    "read_receipts",
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
