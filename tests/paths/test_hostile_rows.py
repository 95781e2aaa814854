"""Rows of a forged store: every checksum fits, and one column holds a value that engrain never writes."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from counting import choose_points
from engrain_conformance.embedder import HashEmbedder
from erasing_kit import FIELDS, WORD, fill

from engrain import Memory, Note
from engrain.core.errors import EngrainError, TaskWaiting
from engrain.stores.sqlite.checksums import load_tables, seal_rows
from engrain.stores.sqlite.connection import connect
from engrain.tiers.records import IndexedDraft

Value = int | float | str | bytes | None
VALUES: dict[str, list[Value]] = {
    "INTEGER": [-1, 0, 2**63 - 1, -(2**63)],
    "REAL": [-1.0, 1e308, 2.0],
    "TEXT": [
        "",
        "[",
        '{"a": [1e400, null]}',
        "null",
        "9" * 5_000,
        "\x00\x1b[2J\u202e",
        "\ue000" * 300,
        "[" * 100_000,
        '{"engrain": 7}',
        '{"engrain": {"steps": [7], "when": 7, "version": "7", "why": 7, "later": 7, "outdates": 7}}',
        '{"v": 1, "value": {"class": [7, "x"], "number": 1e400, "args": 7, "more": 7}, "procedure": 7, "working": 7}',
        '{"v": 1, "value": 7, "handled_failures": "7"}',
        '{"v": 1, "value": 7, "crashes": "7", "working": {"frame": 7}}',
        '{"v": 1, "value": 7}',
        "[7]",
        '[["user", 7, 7]]',
    ],
    "BLOB": [b"", b"\x00", b"\xff" * 7, b"[]" * 500, b"[7]\n", b"[" * 100_000],
}
# Numbers of rows, which other rows point to: their damage is that of a file, and the doctor's matter.
KEYS = {"n", "scope", "item", "cited", "checksum", "key"}
FEW = 6


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "agent.db"
    with open_memory(path) as memory:
        fill(memory)
        leave_task(memory)
        note = IndexedDraft(("key",), b"body", (Note("An indexed text."),))
        memory.records.indexed("indexed").update([("key",)], lambda before: [note])
        memory.forget(memory.remember("A text that is forgotten."))
        memory.remember("Ana lives in Quito.", slot="user.city")
        memory.remember("Ana lives in Lima.", slot="user.city")
    return path


def leave_task(memory: Memory) -> None:
    """Begin or continue a task that failed once, wrote a fact, keeps working memory and waits for an event."""
    with suppress(TaskWaiting), memory.task("waits", goal="to be continued") as run:
        memory.working.add_result("kept", {"a": [1]})
        with suppress(KeyError):
            run.step("fails", fail)
        run.remember_step("fact", "Ana rows on Sundays.")
        run.keep({"page": 3})
        run.wait_event("approval", block=False)


def fail() -> None:
    raise KeyError("missing")


def list_forgeries(path: Path) -> list[tuple[str, str, Value]]:
    with closing(connect(str(path))) as db:
        found = []
        for table in load_tables():
            for name, kind, needed in db.rows('select name, type, "notnull" from pragma_table_info(?)', (table,)):
                if name not in KEYS:
                    values = VALUES["TEXT" if kind == "ANY" else kind] + ([] if needed else [None])
                    found += [(table, name, value) for value in values]
        return found


def forge(path: Path, table: str, column: str, value: Value) -> bool:
    """Put the value into every row, with checksums that fit. False if the schema itself forbids it."""
    with closing(connect(str(path))) as db:
        db.run("begin immediate")
        try:
            db.run(f"update {table} set {column} = ?", (value,))
        except EngrainError:
            db.run("rollback")
            # A unique column: in one row.
            db.run("begin immediate")
            try:
                db.run(
                    f"update {table} set {column} = ?1 where {column} = (select max({column}) from {table})", (value,)
                )
            except EngrainError:
                return False
        try:
            seal_rows(db)
        except EngrainError:  # the counter itself is at its end
            return False
        db.commit()
    return True


def use(path: Path) -> Iterator[str]:
    """Yield each verb that does not end in an answer or a typed error."""
    try:
        memory = open_memory(path)
    except EngrainError:
        return
    except Exception as exc:  # noqa: BLE001  (the point of this test)
        yield f"open: {type(exc).__name__}: {exc}"
        return
    for name, verb in list_verbs(memory, path.parent).items():
        try:
            verb()
        except EngrainError:
            pass
        except Exception as exc:  # noqa: BLE001
            yield f"{name}: {type(exc).__name__}: {exc}"
    try:
        memory.close()
    except EngrainError:
        pass
    except Exception as exc:  # noqa: BLE001
        yield f"close: {type(exc).__name__}: {exc}"


def list_verbs(memory: Memory, folder: Path) -> dict[str, Callable[[], object]]:
    said = {field: f"{WORD}-{field}" for field in FIELDS}
    session, task = said["session"], said["task"]

    def run_again() -> None:
        with memory.task(task, goal=said["goal"]) as run:
            run.step(said["input"], lambda given: given, said["input"])

    return {
        "doctor": lambda: memory.store.doctor(memory.scope),
        "list": lambda: [memory.explain(item.id) for item in memory.list(limit=50, history=True)],
        "recall": lambda: str(memory.recall(WORD, n=8)),
        "recall as of": lambda: str(memory.recall("Ana lives", as_of="2026-11-17T12:00:00Z")),
        "prompt": lambda: memory.prompt("Where does Ana live?"),
        "slots": lambda: (memory.slots.list(), memory.slots.history("user.city")),
        "relations": memory.relations.list,
        "procedures": lambda: (
            memory.procedural.versions(said["procedure"]), memory.procedural.trials(said["procedure"])
        ),
        "sessions": lambda: (memory.sessions.list(), memory.sessions.messages(session, 50)),
        "window": lambda: memory.session(session).conversation.window(),
        "episodes": lambda: [(one, memory.episodic.raw(one.id)) for one in memory.episodic.recent(100)],
        "tasks": lambda: (memory.tasks.list(), memory.tasks.timeline(task), memory.tasks.load_checkpoint(task)),
        "run again": run_again,
        "continue": lambda: leave_task(memory),
        "recover": lambda: memory.tasks.recover(lambda task: leave_task(memory)),
        "procedure": lambda: (memory.procedural.find(said["procedure"]), memory.procedural.best(said["procedure"])),
        "learn": lambda: memory.procedural.learn(said["procedure"], ["Take another."]),
        "start": lambda: (memory.start_session(), memory.end_session()),
        "memories": memory.store.memories,
        "records": lambda: memory.records.read(said["record"], [(said["record"],)]),
        "indexed": lambda: memory.records.indexed("indexed").read([("key",)]),
        "repeat": lambda: memory.remember("Again.", request_id=said["request"]),
        "remember": lambda: memory.remember("Ana lives in Oslo.", slot="user.city"),
        "say": lambda: memory.add_message("user", "I moved to Bergen.", session=session),
        "export": lambda: memory.export(folder / "export.jsonl"),
        "mirror": lambda: memory.mirror(folder / "files").sync(),
        "backup": lambda: memory.store.backup(folder / "backup.db"),
        "status": memory.store.status,
        "audit": lambda: (memory.store.audit(), memory.store.verify_audit()),
        "maintain": memory.store.maintain,
        "forget": lambda: [memory.forget(item.id) for item in memory.list()[:1]],
        "undo": lambda: memory.store.undo("maintenance"),
        "erase": lambda: memory.store.erase(user="ana"),
    }  # fmt: skip


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_row_with_a_forged_value_is_data_or_a_typed_error(
    filled: Path, tmp_path: Path, every: bool, report_counts: Callable[..., None]
) -> None:
    forgeries = list_forgeries(filled)
    step = max(1, len(forgeries) // FEW)
    tried, faults = 0, []
    for number, forgery in enumerate(choose_points(forgeries) if every else forgeries[step // 2 :: step]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = Path(shutil.copy(filled, folder / "agent.db"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if forge(path, *forgery):
                tried += 1
                faults += [f"{forgery[0]}.{forgery[1]} = {str(forgery[2])[:40]!r}: {one}" for one in use(path)]
        shutil.rmtree(folder)
    report_counts(rows=tried, of=len(forgeries))
    assert not faults, "\n".join(faults)
