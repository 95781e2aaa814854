"""The two faces have the same verbs, and the public names are the ones we mean."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import engrain
from engrain import AgentWithMemory, AsyncAgentWithMemory, AsyncMemory, AsyncRun, Memory, Run

# `task` gives a run to be entered, which the run's own face does; `mirror` gives a folder, whose verbs are awaited.
TIERS = {"working", "conversation", "episodic", "semantic", "procedural"}
NOT_AWAITED = {"scope", "task", "mirror", *TIERS}
STEPS = ("step", "effect", "remember_step", "sleep_until", "sleep", "wait_event", "keep")
PUBLIC = """
    __version__ AgentWithMemory Answer AsyncAgentWithMemory AsyncMemory AsyncRun Audited BackedUp BackendMissing
    BadFile BadText BeingErased Checked Cite Closing Compensate ConfigError Conflict ConversationMemory DiskFull
    Effect EmbedderFailed EmptyText EngrainError Erased Event Exported Forgotten Hit Hold InputChanged InvalidInput
    Item LeaseLost LeftOut Loaded Maintained Memory Message ModelFailed NewerStore NotADatabase NotDone Note
    NotFound OlderStore OnHold Opening OutcomeUnknown Owned Place Procedure ReadOnlyStore Recall
    Receipt Relation Released replay_erasures restore_backup Restored ResumableAgent Retry Run Scope Section
    ServerAway Source Status StepAmbiguous StepConcurrent StepFailed StepNested StepRecord StoreBusy StoreClosed
    StoreCorrupt StoreError StoreUnavailable TaskClaimed TaskEnded TaskError TaskRecord TaskWaiting TIERS Timeline
    Tool tool TooLarge ToolCall Undone UnknownKey Verified VersionChanged Why Without WorkingMemory WrongKey
"""


def verbs(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")}


def test_the_public_names_are_these() -> None:
    assert sorted(engrain.__all__) == sorted(PUBLIC.split())
    assert all(hasattr(engrain, name) for name in engrain.__all__)


@pytest.mark.parametrize(
    "verb",
    [
        "forget",
        "recall",
        "status",
        "why",
        "check",
        "maintain",
        "backup",
        "erase",
        "verify_erasure",
        "undo",
        "hold",
        "verify_audit",
        "export",
        "load",
        "timeline",
    ],
)
def test_what_a_verb_returns_can_be_named_in_a_typed_program(verb: str) -> None:
    returned = inspect.signature(getattr(Memory, verb)).return_annotation
    assert set(re.findall(r"[A-Z]\w+", returned)) <= set(engrain.__all__)


def test_every_verb_is_on_both_faces() -> None:
    assert verbs(Memory) == verbs(AsyncMemory)


def test_a_verb_has_one_signature() -> None:
    for name in verbs(Memory) - NOT_AWAITED:
        sync, awaited = getattr(Memory, name), getattr(AsyncMemory, name)
        assert inspect.iscoroutinefunction(awaited), name
        assert not inspect.iscoroutinefunction(sync), name
        assert inspect.signature(sync) == inspect.signature(awaited), name


def test_a_run_has_the_same_steps_on_both_faces() -> None:
    for sync, awaited in [(Memory.task, AsyncMemory.task), *((getattr(Run, n), getattr(AsyncRun, n)) for n in STEPS)]:
        assert inspect.signature(sync).parameters == inspect.signature(awaited).parameters
    assert all(set(STEPS) == {name for name in vars(face) if name[0] != "_"} for face in (Run, AsyncRun))


def test_a_folder_is_named_alike_on_both_faces() -> None:
    assert inspect.signature(Memory.mirror).parameters == inspect.signature(AsyncMemory.mirror).parameters


def test_both_agents_are_made_and_run_alike() -> None:
    for name in ("__init__", "run", "status"):
        sync, awaited = getattr(AgentWithMemory, name), getattr(AsyncAgentWithMemory, name)
        assert inspect.signature(sync) == inspect.signature(awaited), name
    assert verbs(AgentWithMemory) == verbs(AsyncAgentWithMemory)
    assert inspect.iscoroutinefunction(AsyncAgentWithMemory.run)


def test_importing_engrain_is_light() -> None:
    heavy = ["numpy", "onnxruntime", "apsw", "rich", "click", "orjson", "httpx", "Stemmer", "opentelemetry"]
    code = f"import engrain, sys; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_public_name_says_what_it_is() -> None:
    for name in engrain.__all__:
        if name not in ("__version__", "TIERS"):
            assert inspect.getdoc(getattr(engrain, name)), name


def test_every_verb_says_what_it_does() -> None:
    verbs_alone = verbs(Memory) - {"scope", *TIERS}
    assert [name for name in sorted(verbs_alone) if not getattr(Memory, name).__doc__] == []
    for run in (Run, AsyncRun):
        assert [name for name in STEPS if not getattr(run, name).__doc__] == []
