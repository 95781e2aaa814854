"""The same long task in another system: tasks_child.py dbos|langgraph steps|resume|window FOLDER; answers in JSON."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import sys
import time
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

STEPS, RESUMED, BYTES = 400, 1_000, 1024


def payload(number: int) -> str:
    return (f"{number:06d}" * (BYTES // 6 + 1))[:BYTES]


class Bare:
    """Bare FULL commits of one such row into a log, one after each step: both meet the same machine."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "bare.db", isolation_level=None, check_same_thread=False)
        for statement in (
            "pragma journal_mode=wal",
            "pragma synchronous=full",
            "create table if not exists row (n integer primary key, text text)",
        ):
            self._db.execute(statement)
        self.took: list[float] = []

    def commit(self) -> float:
        began = time.perf_counter()
        self._db.execute("begin immediate")
        self._db.execute("insert into row (text) values (?)", (payload(len(self.took)),))
        self._db.execute("commit")
        self.took.append(time.perf_counter() - began)
        return self.took[-1]


def stored(folder: Path, prefix: str) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.name.startswith(prefix))


def die_once(folder: Path) -> None:
    """The effect happens; the process is killed before anybody can record it."""
    with (folder / "effects").open("a") as effects:
        effects.write("sent\n")
    if (folder / "effects").read_text().count("\n") == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def with_dbos(what: str, folder: Path, bare: Bare) -> dict[str, Any]:
    from dbos import DBOS, SetWorkflowID

    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "ERROR"})
    took: list[float] = []

    @DBOS.step()
    def one(number: int) -> str:
        return payload(number)

    @DBOS.step()
    def effect() -> None:
        die_once(folder)

    @DBOS.workflow()
    def long(count: int, stop: bool) -> None:
        for number in range(count):
            began = time.perf_counter()
            one(number)
            took.append(time.perf_counter() - began)
            if not stop:
                bare.commit()
        if stop and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    @DBOS.workflow()
    def window() -> None:
        effect()

    DBOS.launch()
    if what == "window":
        if (folder / "effects").exists():
            DBOS.retrieve_workflow("task").get_result()
        else:
            with SetWorkflowID("task"):
                window()
        return {"effects": (folder / "effects").read_text().count("\n")}
    if what == "resume":
        if (folder / "stopped").exists():
            DBOS.retrieve_workflow("task").get_result()
            return {"resume_s": sum(took)}
        with SetWorkflowID("task"):
            long(RESUMED, True)
    with SetWorkflowID("task"):
        long(STEPS, False)
    DBOS.destroy()
    return {"step_s": statistics.median(took), "bytes": stored(folder, "dbos.sqlite")}


class State(TypedDict):
    texts: Annotated[list[str], add]


def with_langgraph(what: str, folder: Path, bare: Bare) -> dict[str, Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    took: list[float] = []
    last = [time.perf_counter()]

    def one(state: State) -> dict[str, list[str]]:
        took.append(time.perf_counter() - last[0])
        bare.commit()
        last[0] = time.perf_counter()
        return {"texts": [payload(len(state["texts"]))]}

    def effect(state: State) -> dict[str, list[str]]:
        die_once(folder)
        return {"texts": ["sent"]}

    builder = StateGraph(State)
    builder.add_node("one", effect if what == "window" else one)
    builder.add_edge(START, "one")
    if what == "window":
        builder.add_edge("one", END)
    else:
        builder.add_conditional_edges("one", lambda state: END if len(state["texts"]) >= STEPS else "one")
    settings: Any = {"configurable": {"thread_id": "task"}, "recursion_limit": STEPS + 10}
    with SqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        graph = builder.compile(checkpointer=saver)
        begun = (folder / "effects").exists()
        graph.invoke(None if begun else {"texts": []}, settings, durability="sync")
    if what == "window":
        return {"effects": (folder / "effects").read_text().count("\n")}
    return {"step_s": statistics.median(took[1:]), "bytes": stored(folder, "langgraph.db")}


if __name__ == "__main__":
    system, what, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    bare = Bare(folder)
    report = {"dbos": with_dbos, "langgraph": with_langgraph}[system](what, folder, bare)
    if bare.took:
        report["bare_s"] = statistics.median(bare.took)
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    os._exit(0)
