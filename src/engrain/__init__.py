"""engrain: a memory for AI agents that stays.

from engrain import Memory

with Memory("agent.db", user="ana") as memory:
    memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
    print(memory.recall("Which language should the example use?"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from engrain.agent.agent import AgentWithMemory, AsyncAgentWithMemory
    from engrain.agent.tools import Tool, tool
    from engrain.agent.turn import AgentReply
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
    from engrain.core.model.audit import AuditEntry, AuditResult
    from engrain.core.model.erasure import Hold, HoldRelease
    from engrain.core.model.items import Citation, Item, Note, Relation, SessionPosition, Source
    from engrain.core.model.messages import ChatReply, Message, ToolCall
    from engrain.core.model.plans import Outcome
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.recall import Degraded, Hit, Omitted, Recall, Section
    from engrain.core.model.results import (
        CheckResult,
        Explanation,
        ForgetResult,
        MaintenanceAction,
        MaintenanceReport,
        MemoryInfo,
        Progress,
        Status,
    )
    from engrain.core.model.retention import TIERS
    from engrain.core.model.sessions import Event, SessionEnd, SessionInfo, SessionStart
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.maintenance.consolidate import ConsolidationResult
    from engrain.memory import Memory, Session, Store
    from engrain.memory.async_memory import AsyncMemory, AsyncSession, AsyncStore
    from engrain.memory.restore import replay_erasures, restore_backup
    from engrain.mirror.mirror import Mirror
    from engrain.privacy.erase import ErasureResult, UndoResult
    from engrain.privacy.receipts import Receipt, VerificationResult
    from engrain.tasks.admin import Tasks, Timeline
    from engrain.tasks.run import AsyncRun, Run
    from engrain.tasks.steps import Compensate, Retry
    from engrain.tasks.workflow import Effect, ResumableAgent
    from engrain.tiers.conversation import ConversationMemory
    from engrain.tiers.episodic import EpisodicMemory
    from engrain.tiers.procedural import ProceduralMemory
    from engrain.tiers.scoped_working import ScopedWorkingMemory
    from engrain.tiers.semantic import Relations, SemanticMemory, Slots
    from engrain.tiers.sessions import Sessions
    from engrain.tiers.working import WorkingMemory
    from engrain.transfer.copy import CopyResult
    from engrain.transfer.export import ExportResult
    from engrain.transfer.load import LoadResult

# Where each name lives. It is imported when first used, so that `import engrain` and `engrain --help` are quick.
_HOMES = {
    "agent.agent": "AgentWithMemory AsyncAgentWithMemory",
    "agent.tools": "Tool tool",
    "agent.turn": "AgentReply",
    "core.errors": "BackendMissing BackendUnavailableWarning BadFile BadText BeingErased ConfigError Conflict DiskFull "
    "EffectNotPerformed EmbedderFailed EmptyText EngrainError InputChanged InvalidInput LeaseLost "
    "ModelFailed NewerStore NotADatabase NotFound OlderStore OnHold OutcomeUnknown ReadOnlyStore "
    "StepAmbiguous StepConcurrent StepFailed StepNested StoreBusy StoreClosed StoreCorrupt StoreError "
    "StoreUnavailable TaskClaimed TaskEnded TaskError TaskWaiting TooLarge UnknownKey VersionChanged "
    "WrongKey",
    "core.formats.manifests": "BackupInfo RestoreResult",
    "core.identity": "Scope",
    "core.model.audit": "AuditEntry AuditResult",
    "core.model.erasure": "Hold HoldRelease",
    "core.model.items": "Citation Item Note Relation SessionPosition Source",
    "core.model.messages": "ChatReply Message ToolCall",
    "core.model.plans": "Outcome",
    "core.model.procedures": "Procedure",
    "core.model.recall": "Degraded Hit Omitted Recall Section",
    "core.model.results": "CheckResult Explanation ForgetResult MaintenanceAction MaintenanceReport MemoryInfo "
    "Progress Status",
    "core.model.retention": "TIERS",
    "core.model.sessions": "Event SessionEnd SessionInfo SessionStart",
    "core.model.tasks": "StepRecord TaskRecord",
    "maintenance.consolidate": "ConsolidationResult",
    "memory": "Memory Session Store",
    "memory.async_memory": "AsyncMemory AsyncSession AsyncStore",
    "memory.restore": "replay_erasures restore_backup",
    "mirror.mirror": "Mirror",
    "privacy.erase": "ErasureResult UndoResult",
    "privacy.receipts": "Receipt VerificationResult",
    "tasks.admin": "Tasks Timeline",
    "tasks.run": "AsyncRun Run",
    "tasks.steps": "Compensate Retry",
    "tasks.workflow": "Effect ResumableAgent",
    "tiers.conversation": "ConversationMemory",
    "tiers.episodic": "EpisodicMemory",
    "tiers.procedural": "ProceduralMemory",
    "tiers.scoped_working": "ScopedWorkingMemory",
    "tiers.semantic": "Relations SemanticMemory Slots",
    "tiers.sessions": "Sessions",
    "tiers.working": "WorkingMemory",
    "transfer.copy": "CopyResult",
    "transfer.export": "ExportResult",
    "transfer.load": "LoadResult",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "TIERS",
    "AgentReply",
    "AgentWithMemory",
    "AsyncAgentWithMemory",
    "AsyncMemory",
    "AsyncRun",
    "AsyncSession",
    "AsyncStore",
    "AuditEntry",
    "AuditResult",
    "BackendMissing",
    "BackendUnavailableWarning",
    "BackupInfo",
    "BadFile",
    "BadText",
    "BeingErased",
    "ChatReply",
    "CheckResult",
    "Citation",
    "Compensate",
    "ConfigError",
    "Conflict",
    "ConsolidationResult",
    "ConversationMemory",
    "CopyResult",
    "Degraded",
    "DiskFull",
    "Effect",
    "EffectNotPerformed",
    "EmbedderFailed",
    "EmptyText",
    "EngrainError",
    "EpisodicMemory",
    "ErasureResult",
    "Event",
    "Explanation",
    "ExportResult",
    "ForgetResult",
    "Hit",
    "Hold",
    "HoldRelease",
    "InputChanged",
    "InvalidInput",
    "Item",
    "LeaseLost",
    "LoadResult",
    "MaintenanceAction",
    "MaintenanceReport",
    "Memory",
    "MemoryInfo",
    "Message",
    "Mirror",
    "ModelFailed",
    "NewerStore",
    "NotADatabase",
    "NotFound",
    "Note",
    "OlderStore",
    "Omitted",
    "OnHold",
    "Outcome",
    "OutcomeUnknown",
    "ProceduralMemory",
    "Procedure",
    "Progress",
    "ReadOnlyStore",
    "Recall",
    "Receipt",
    "Relation",
    "Relations",
    "RestoreResult",
    "ResumableAgent",
    "Retry",
    "Run",
    "Scope",
    "ScopedWorkingMemory",
    "Section",
    "SemanticMemory",
    "Session",
    "SessionEnd",
    "SessionInfo",
    "SessionPosition",
    "SessionStart",
    "Sessions",
    "Slots",
    "Source",
    "Status",
    "StepAmbiguous",
    "StepConcurrent",
    "StepFailed",
    "StepNested",
    "StepRecord",
    "Store",
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
    "Tasks",
    "Timeline",
    "TooLarge",
    "Tool",
    "ToolCall",
    "UndoResult",
    "UnknownKey",
    "VerificationResult",
    "VersionChanged",
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
