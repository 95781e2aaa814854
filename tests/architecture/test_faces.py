"""The two faces have the same verbs, and what they answer has a public name."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import engrain
from engrain import (
    AgentWithMemory,
    AsyncAgentWithMemory,
    AsyncMemory,
    AsyncRun,
    AsyncStore,
    Memory,
    ResumableAgent,
    Run,
    Store,
    WorkingMemory,
)

PARTS = {
    "slots",
    "relations",
    "working",
    "conversation",
    "episodic",
    "semantic",
    "procedural",
    "sessions",
    "records",
    "tasks",
}
VALUES = {"scope", "reads", "current_session", "store", "services", "workers", *PARTS}
# Each gives an object whose own verbs are awaited.
NOT_AWAITED = {"task", "mirror", "session", "memory"}
OWN = {"call_in_thread", "opened", "run_in_thread"}  # how the awaited face reaches the other
STEPS = ("step", "effect", "remember_step", "sleep_until", "sleep", "wait_event", "keep")
FACES = [(Memory, AsyncMemory), (Store, AsyncStore)]
MOST_KEYWORDS = 9


def verbs(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")}


def test_the_public_names_are_sorted_and_there() -> None:
    assert engrain.__all__ == sorted(engrain.__all__)
    assert all(hasattr(engrain, name) for name in engrain.__all__)


@pytest.mark.parametrize("face", [Memory, Store])
def test_what_a_verb_returns_can_be_named_in_a_typed_program(face: type) -> None:
    for verb in verbs(face) - VALUES:
        returned = inspect.signature(getattr(face, verb)).return_annotation
        assert set(re.findall(r"[A-Z]\w+", str(returned))) - {"None"} <= set(engrain.__all__), verb


@pytest.mark.parametrize(("sync", "awaited"), FACES)
def test_every_verb_is_on_both_faces(sync: type, awaited: type) -> None:
    assert verbs(sync) - {"services", "workers"} == verbs(awaited) - OWN


@pytest.mark.parametrize(("sync", "awaited"), FACES)
def test_a_verb_has_one_signature(sync: type, awaited: type) -> None:
    for name in verbs(sync) - VALUES:
        plain, coroutine = getattr(sync, name), getattr(awaited, name)
        assert not inspect.iscoroutinefunction(plain), name
        assert inspect.iscoroutinefunction(coroutine) == (name not in NOT_AWAITED), name
        assert inspect.signature(plain).parameters == inspect.signature(coroutine).parameters, name


@pytest.mark.parametrize(("sync", "awaited"), FACES)
def test_both_faces_are_made_alike(sync: type, awaited: type) -> None:
    plain, other = inspect.signature(sync).parameters, inspect.signature(awaited).parameters
    assert [(one.name, one.kind, one.default) for one in plain.values()] == [
        (one.name, one.kind, one.default) for one in other.values()
    ]


@pytest.mark.parametrize("made", [Memory, Store, AgentWithMemory, WorkingMemory, ResumableAgent])
def test_a_constructor_takes_at_most_nine_keywords(made: type) -> None:
    keywords = [one for one in inspect.signature(made).parameters.values() if one.kind is one.KEYWORD_ONLY]
    assert len(keywords) <= MOST_KEYWORDS


def test_nothing_is_a_dry_run_unless_it_is_asked_for() -> None:
    for face in (Memory, Store, engrain.SemanticMemory, engrain.Mirror):
        for name in verbs(face):
            verb = getattr(face, name)
            dry = inspect.signature(verb).parameters.get("dry_run") if callable(verb) else None
            assert dry is None or dry.default is False, name


def test_progress_has_one_shape() -> None:
    for face in (Memory, Store):
        for name in verbs(face) - VALUES:
            found = inspect.signature(getattr(face, name)).parameters.get("progress")
            assert found is None or (found.kind is found.KEYWORD_ONLY and found.annotation == "Progress | None"), name


def test_a_run_has_the_same_steps_on_both_faces() -> None:
    for sync, awaited in [(Memory.task, AsyncMemory.task), *((getattr(Run, n), getattr(AsyncRun, n)) for n in STEPS)]:
        assert inspect.signature(sync).parameters == inspect.signature(awaited).parameters
    assert all(set(STEPS) == {name for name in vars(face) if name[0] != "_"} for face in (Run, AsyncRun))


def test_both_agents_are_made_and_run_alike() -> None:
    for name in ("__init__", "run", "status"):
        sync, awaited = getattr(AgentWithMemory, name), getattr(AsyncAgentWithMemory, name)
        assert inspect.signature(sync).parameters == inspect.signature(awaited).parameters, name
    assert verbs(AgentWithMemory) == verbs(AsyncAgentWithMemory)


def test_importing_engrain_is_light() -> None:
    heavy = ["numpy", "onnxruntime", "apsw", "rich", "click", "orjson", "httpx", "Stemmer", "opentelemetry"]
    code = f"import engrain, sys; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_public_name_says_what_it_is() -> None:
    for name in engrain.__all__:
        if name not in ("__version__", "TIERS", "Progress"):
            assert inspect.getdoc(getattr(engrain, name)), name


def test_every_verb_says_what_it_does() -> None:
    for face in (Memory, Store):
        assert [name for name in sorted(verbs(face)) if not getattr(face, name).__doc__] == []
    for run in (Run, AsyncRun):
        assert [name for name in STEPS if not getattr(run, name).__doc__] == []
