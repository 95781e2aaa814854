"""Every writing verb is killed at each call to the storage and repeated with its request id: done once, one answer."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from counting import choose_points
from dying import DyingVfs, Points
from engrain_conformance.embedder import HashEmbedder
from forked import fork_child, wait_for_child

from engrain import Memory, Note, Store
from engrain.core.errors import Conflict, StepAmbiguous
from engrain.core.model.tasks import TaskQuery
from engrain.memory.session_handle import Session
from engrain.tasks.manage_tasks import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.scoped_working import ScopedWorkingMemory
from engrain.tiers.semantic import Relations, SemanticMemory, Slots
from engrain.tiers.session_lifecycle import Sessions
from engrain.tiers.working import WorkingMemory

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

FACES = (
    Memory, Session, Store, Slots, Relations, ConversationMemory, EpisodicMemory, SemanticMemory, ProceduralMemory,
    Sessions, Tasks, ScopedWorkingMemory,
)  # fmt: skip
READS = {
    "recall", "prompt", "get", "list", "explain", "session", "export", "export_json", "export_yaml", "mirror", "close",
    "messages", "memory", "memories", "status", "doctor", "verify_erasure", "holds", "audit", "verify_audit", "history",
    "about", "window", "messages_for_llm", "system_for_llm", "last", "search", "recent", "important", "raw",
    "change_number", "all_valid", "require", "versions", "best", "find", "names", "trials", "timeline",
    "load_checkpoint", "execution", "recover_flow", "find_end", "version_of", "current_work", "follow",
    "collect_profile", "find_records",
}  # fmt: skip
# Repeating these does what is still to be done, and nothing twice.
REPEATABLE = {
    "start_session": "it summarises earlier sessions, each once for its length",
    "start": "as start_session",
    "end_if_writable": "as end, for start_session",
    "summarize": "a summary is derived, and replaces the one before",
    "append": "add_many with options, which have the request id",
    "task": "the task's id is the request's",
    "recover": "continues tasks, whose steps run once",
    "load": "every row has an id or a place of its own",
    "maintain": "does what is due",
    "consolidate": "does what is due",
    "prune": "removes what is old",
    "resume_erasures": "completes what is running",
    "rebuild": "makes the indexes anew",
    "copy": "continues a partly made copy",
    "backup": "an existing file is refused",
    "resume_session": "reads the state of working memory",
    "clear_erased": "follows an erasure",
}


@dataclass(frozen=True)
class Case:
    call: Callable[[Memory, str], Any]
    # What others do before it is repeated once more, which must not be undone or met by it.
    meanwhile: Callable[[Memory], Any] = lambda memory: memory.remember("Said in between.", importance=0.9)


def pay() -> None:
    raise OSError("the line is dead")


def prepare(memory: Memory) -> None:
    memory.remember("Lima", slot="user.city")
    memory.remember("Tea is green.", importance=0.4)
    for number in range(3):
        memory.remember(f"Page fact {number}.", source="page")
    memory.remember("A poisoned fact.", source="poison")
    session = memory.session("monday")
    session.add_message("user", "My dog is called Rex.")
    session.add_message("assistant", "What a fine name.")
    memory.episodic.record_error("The parcel is lost.", session="monday")
    memory.procedural.learn("bake", ["mix", "wait"])
    for name in ("ambiguous", "parked", "stopped", "waiting"):
        with pytest.raises(StepAmbiguous), memory.task(name, goal=f"run {name}") as run:
            run.effect("pay", pay)
    memory.tasks.resume("waiting")
    with memory.task("ended") as run:
        run.step("one", lambda: 1)
    memory.store.hold("ben", reason="case-1")


def find(memory: Memory, text: str) -> str:
    return next(item.id for item in memory.list(history=True, limit=1000) if text in item.text)


def noted(memory: Memory, text: str) -> str:
    """The id as the caller noted it before: its item may be corrected or gone by now."""
    note = Path(memory.store._location or "").with_suffix(".note")
    if not note.exists():
        note.write_text(find(memory, text))
    return note.read_text()


def correct(memory: Memory, request: str) -> str:
    return memory.correct(noted(memory, "Tea is green."), "Tea is black.", request_id=request)


def finish(memory: Memory, request: str) -> str | None:
    if not memory.working.task:
        memory.working.start("bake a cake", procedure="bake")
    return memory.working.finish(True, "baked", request_id=request)


def end(memory: Memory, request: str) -> Any:
    if memory.current_session is None:
        memory.start_session("monday")
    return memory.end_session(request_id=request)


def said(memory: Memory) -> None:
    memory.session("monday").add_message("user", "My cat is called Tom.")


CASES: dict[str, Case] = {
    "Memory.remember": Case(lambda m, r: m.remember("Rain.", importance=0.2, request_id=r)),
    "Memory.remember_many": Case(lambda m, r: m.remember_many(["One.", Note("Two.")], request_id=r)),
    "Memory.update": Case(
        lambda m, r: m.update(noted(m, "Tea is green."), importance=0.8, request_id=r),
        lambda m: m.correct(find(m, "Tea is green."), "Tea is black."),
    ),
    "Memory.correct": Case(correct, lambda m: m.forget(find(m, "Tea is black."), keep_source=True) and None),
    "Memory.forget": Case(
        lambda m, r: m.forget({"source": "page"}, request_id=r), lambda m: m.remember("New.", source="page")
    ),
    "Memory.add_message": Case(lambda m, r: m.add_message("user", "I live in Quito.", session="monday", request_id=r)),
    "Memory.add_messages": Case(
        lambda m, r: m.add_messages([{"role": "user", "content": "I like figs."}], session="monday", request_id=r)
    ),
    "Memory.end_session": Case(end, said),
    "Memory.erase": Case(lambda m, r: m.erase(source="page", request_id=r), lambda m: m.remember("X.", source="page")),
    "Session.add_message": Case(lambda m, r: m.session("tuesday").add_message("user", "I am Ana.", request_id=r)),
    "Session.add_messages": Case(
        lambda m, r: m.session("tuesday").add_messages([{"role": "user", "content": "Hello."}], request_id=r)
    ),
    "Session.end": Case(lambda m, r: m.session("monday").end(request_id=r), said),
    "Store.erase": Case(lambda m, r: m.store.erase(user="ana", request_id=r)),
    "Store.undo": Case(
        lambda m, r: m.store.undo("poison", user="ana", request_id=r).done,
        lambda m: m.remember("Not poison.", source="poison"),
    ),
    "Store.hold": Case(
        lambda m, r: m.store.hold("ana", reason="case-2", request_id=r), lambda m: m.store.release("ana")
    ),
    "Store.release": Case(
        lambda m, r: m.store.release("ben", request_id=r), lambda m: m.store.hold("ben", reason="case-1")
    ),
    "Relations.add": Case(lambda m, r: m.relations.add("Ana", "works at", "Acme", request_id=r)),
    "ConversationMemory.add": Case(
        lambda m, r: m.session("monday").conversation.add("user", "I like jazz.", request_id=r)
    ),
    "ConversationMemory.add_many": Case(
        lambda m, r: m.session("monday").conversation.add_many([{"role": "user", "content": "Hi."}], request_id=r)
    ),
    "ConversationMemory.clear": Case(lambda m, r: m.session("monday").conversation.clear(request_id=r), said),
    "EpisodicMemory.record": Case(lambda m, r: m.episodic.record("It rains.", session="monday", request_id=r)),
    "EpisodicMemory.record_tool_call": Case(
        lambda m, r: m.episodic.record_tool_call("search", {"q": "x"}, "found", session="monday", request_id=r)
    ),
    "EpisodicMemory.record_decision": Case(
        lambda m, r: m.episodic.record_decision("Take the bus.", "It is cheap.", session="monday", request_id=r)
    ),
    "EpisodicMemory.record_error": Case(
        lambda m, r: m.episodic.record_error("The oven is cold.", session="monday", request_id=r)
    ),
    "EpisodicMemory.record_resolution": Case(
        lambda m, r: m.episodic.record_resolution(noted(m, "Error: The parcel"), "It was found.", request_id=r)
    ),
    "EpisodicMemory.remove": Case(
        lambda m, r: m.episodic.remove([find(m, "Error: The parcel")], request_id=r), lambda m: None
    ),
    "SemanticMemory.remember": Case(lambda m, r: m.semantic.remember(Note("Snow."), r)),
    "SemanticMemory.learn": Case(lambda m, r: m.semantic.learn("Snow is cold.", request_id=r)),
    "SemanticMemory.remember_many": Case(lambda m, r: m.semantic.remember_many(["One.", "Two."], r)),
    "SemanticMemory.correct": Case(
        lambda m, r: m.semantic.correct(noted(m, "Lima"), Note("Quito"), r),
        lambda m: m.remember("Lima", slot="user.city"),
    ),
    "SemanticMemory.change": Case(
        lambda m, r: m.update(find(m, "Lima"), pinned=True, request_id=r),
        lambda m: m.update(find(m, "Lima"), pinned=False),
    ),
    "SemanticMemory.forget": Case(lambda m, r: m.semantic.forget(noted(m, "Page fact 1."), request_id=r)),
    "ProceduralMemory.learn": Case(
        lambda m, r: m.procedural.learn("bake", ["mix", "bake", "wait"], request_id=r),
        lambda m: m.procedural.learn("bake", ["buy a cake"]),
    ),
    "ProceduralMemory.used": Case(
        lambda m, r: m.procedural.used(m.procedural.require("bake").id, "t1", False, request_id=r)
    ),
    "Sessions.end": Case(lambda m, r: m.sessions.end("monday", request_id=r), said),
    "Tasks.resolve": Case(
        lambda m, r: m.tasks.resolve("ambiguous", "pay", "done", result=7, note="seen", request_id=r).status
    ),
    "Tasks.signal": Case(lambda m, r: m.tasks.signal("parked", "paid", 3, request_id=r)),
    "Tasks.park": Case(
        lambda m, r: m.tasks.park("waiting", "wait", request_id=r).task, lambda m: m.tasks.resume("waiting")
    ),
    "Tasks.cancel": Case(lambda m, r: m.tasks.cancel("parked", "no more", request_id=r).status),
    "Tasks.resume": Case(lambda m, r: m.tasks.resume("stopped", request_id=r).task, lambda m: m.tasks.park("stopped")),
    "Tasks.checkpoint": Case(
        lambda m, r: m.tasks.checkpoint("draft", {"page": 1}, request_id=r),
        lambda m: m.tasks.checkpoint("draft", {"page": 2}),
    ),
    "Tasks.remove": Case(lambda m, r: m.tasks.remove("ended", request_id=r), lambda m: enter(m, "ended")),
    "ScopedWorkingMemory.finish": Case(finish),
}


def enter(memory: Memory, task: str) -> None:
    with memory.task(task) as run:
        run.step("one", lambda: 1)


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def look(memory: Memory) -> list[Any]:
    """All that a verb may change, without ids and times."""
    services, scope = memory.store.services, memory.scope
    items = memory.list(history=True, limit=1000)
    shown = [
        (
            one.kind,
            one.text,
            one.slot,
            one.importance,
            one.pinned,
            one.open,
            bool(one.retracted_at),
            one.session,
            one.place,
        )
        for one in items
    ]
    assert services.journal
    assert services.episodes
    assert services.outcomes
    tasks = services.journal.tasks(TaskQuery(scope, limit=100))
    episodes = services.episodes.recent(scope, None, 1000, services.clock())
    tallies = services.outcomes.tallies(scope, [one.id for one in items])
    return [
        sorted(shown, key=repr),
        sorted((one.task, one.status, one.snapshot if one.task == "draft" else "") for one in tasks),
        sorted(
            (one.name, one.status, one.error or "")
            for task in tasks
            for one in services.journal.steps(scope, task.task)
        ),
        sorted((one.kind, one.session, one.count) for one in episodes),
        sorted((one.successes, one.failures) for one in tallies.values()),
        sorted(Counter(entry.what for entry in memory.store.audit()).items()),
        sorted(hold.reasons for hold in memory.store.holds()),
        len(memory.session("monday").conversation.window().chat_messages),
        services.journal.event(scope, "parked", "paid"),
    ]


def forked(work: Callable[[], object]) -> bool:
    """Run it in a child: True if that was killed."""
    ended = wait_for_child(fork_child(work))
    assert ended <= 0, "the verb failed by itself"
    return ended == -signal.SIGKILL


def kill(case: Case, path: Path, fatal: int | None) -> bool:
    """In a child, at a call to the storage. How many there were is noted beside the store."""

    def work() -> None:
        points = Points()
        vfs = DyingVfs(points)
        memory = open_memory(path)
        points.count, points.fatal = 0, fatal
        case.call(memory, "r-1")
        path.with_suffix(".points").write_text(str(points.count))
        points.fatal = None
        vfs.unregister()

    return forked(work)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "store.db"
    with open_memory(path) as memory:
        prepare(memory)
    return path


def copies(base: Path, folder: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        path = folder / f"{number}.db"
        shutil.copy(base, path)
        yield path


# One verb of each way to the store. The long suites kill all of them, at every point.
KILLED_BY_DEFAULT = (
    "Memory.remember", "Memory.correct", "Memory.forget", "Memory.add_message", "Memory.erase", "Store.undo",
    "Session.end", "EpisodicMemory.record", "ProceduralMemory.learn", "Tasks.resolve",
)  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "every"),
    [
        *((verb, False) for verb in KILLED_BY_DEFAULT),
        *(pytest.param(verb, True, marks=pytest.mark.slow) for verb in CASES),
    ],
)
def test_a_verb_killed_anywhere_and_repeated_is_done_once(
    base: Path, tmp_path: Path, verb: str, every: bool, report_counts: Callable[..., None]
) -> None:
    case, paths = CASES[verb], copies(base, tmp_path)
    with open_memory(next(paths)) as memory:
        case.call(memory, "r-1")
        wanted = look(memory)
        case.meanwhile(memory)
    whole = next(paths)
    assert not kill(case, whole, None)
    count = int(whole.with_suffix(".points").read_text())
    assert count, "no call to the storage: it writes nothing"
    chosen = choose_points(range(1, count + 1)) if every else [count]
    report_counts(verbs=1, kills=len(chosen), of=count)
    for fatal in (None, *chosen):
        path = whole if fatal is None else next(paths)
        assert fatal is None or kill(case, path, fatal)
        with open_memory(path) as memory:
            first = case.call(memory, "r-1")
            assert look(memory) == wanted, fatal
            assert case.call(memory, "r-1") == first, fatal
            case.meanwhile(memory)
            between = look(memory)
            assert case.call(memory, "r-1") == first, fatal
            assert look(memory) == between, fatal


def test_every_verb_takes_a_request_id_or_says_why_not() -> None:
    working = {name for name in dir(WorkingMemory) if not name.startswith("_")}
    found: dict[str, bool] = {}
    for face in FACES:
        for name, method in inspect.getmembers(face, inspect.isfunction):
            # Working memory is of the process, but for `finish`.
            if not name.startswith("_") and not (face is ScopedWorkingMemory and name in working | {"step"}):
                found[f"{face.__name__}.{name}"] = "request_id" in inspect.signature(method).parameters
    internal = {"Sessions.find_end", "ProceduralMemory.count_trial"}
    assert {name for name, takes in found.items() if takes} - internal == set(CASES)
    rest = {name.partition(".")[2] for name, takes in found.items() if not takes}
    assert rest - READS == set(REPEATABLE) & rest
    assert not READS & set(REPEATABLE)


def test_a_request_id_is_for_one_request(base: Path, tmp_path: Path) -> None:
    with open_memory(next(copies(base, tmp_path))) as memory:
        correct(memory, "r-1")
        for verb in (
            lambda: memory.update(find(memory, "Lima"), pinned=True, request_id="r-1"),
            lambda: memory.forget({"source": "page"}, request_id="r-1"),
            lambda: memory.tasks.park("waiting", request_id="r-1"),
            lambda: memory.end_session(request_id="r-1"),
        ):
            with pytest.raises(Conflict):
                verb()
