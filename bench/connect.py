"""Measure a connected memory: prompts through the hook at 10,000 items, and a day of 2,000 events.

Run: python bench/connect.py [ITEMS]
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engrain.connect.clients import HOOK_SCRIPT
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.recorder import EventRecorder
from engrain.connect.repository import find_repository, make_scopes
from engrain.server.resident import find_place, stop

PROMPTS, DAY_EVENTS = 40, 2_000
NOUNS = [
    "parser", "router", "cache", "worker", "session", "invoice", "schema", "migration", "token", "queue", "client",
    "payment", "widget", "report", "index",
]  # fmt: skip
VERBS = ["reads", "writes", "rejects", "stores", "renders", "validates", "retries", "signs", "merges", "expires"]
PLACES = ["staging", "production", "the worker", "the browser", "CI", "the app", "the admin page", "the batch job"]


def write_sentence(number: int) -> str:
    pick = random.Random(number)
    thing, verb, other, place = (pick.choice(words) for words in (NOUNS, VERBS, NOUNS, PLACES))
    return f"The {thing} number {number} {verb} the {other} in {place}."


def fill(home: ConnectHome, folder: Path, items: int) -> None:
    own, _ = make_scopes(find_repository(folder))
    with open_store(home, background=False) as store:
        memory = store.memory(agent=own.agent, user=own.user)
        for start in range(0, items, 500):
            memory.remember_many([write_sentence(number) for number in range(start, min(items, start + 500))])


def call_hook(home: ConnectHome, folder: Path, number: int) -> float:
    text = f"Why does the {NOUNS[number % len(NOUNS)]} number {number * 97} fail?"
    payload = {"session_id": f"s{number}", "cwd": str(folder), "prompt": text, "prompt_id": f"p{number}"}
    command = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(home.folder), "claude", "UserPromptSubmit"]
    began = time.perf_counter()
    subprocess.run(command, input=json.dumps(payload).encode(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def read_usage(pid: int) -> tuple[float, float]:
    """CPU seconds and resident megabytes of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_prompts(home: ConnectHome, folder: Path) -> None:
    os.environ["ENGRAIN_HOOK_PATIENCE"] = "20"
    call_hook(home, folder, 0)
    time.sleep(5)
    pid = find_place(home.store).read_pid()
    assert pid is not None, "the resident process did not start"
    call_hook(home, folder, 1)
    before, own = read_usage(pid)[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    times = sorted(call_hook(home, folder, number) * 1000 for number in range(2, PROMPTS + 2))
    after, rss = read_usage(pid)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    hook = (spent.ru_utime + spent.ru_stime - own.ru_utime - own.ru_stime) / PROMPTS * 1000
    sys.stdout.write(
        f"prompts: p50 {statistics.median(times):.0f} ms, p95 {times[int(0.95 * len(times))]:.0f} ms wall;"
        f" CPU {(after - before) / PROMPTS * 1000:.0f} ms in the process, {hook:.0f} ms in the hook; {rss:.0f} MB\n"
    )
    stop(home.store)


def measure_day(home: ConnectHome, folder: Path) -> None:
    sizes = []
    with open_store(home, background=False) as store:
        recorder, count = EventRecorder(store, home), store.services.count_tokens
        began = time.process_time()
        for number in range(DAY_EVENTS):
            common = {"session_id": f"s{number // 100}", "cwd": str(folder), "prompt_id": f"p{number}"}
            kind, payload = ("Stop", {"last_assistant_message": f"Done. {write_sentence(number)}"})
            if number % 5 == 0:
                kind, payload = "UserPromptSubmit", {"prompt": f"Please change it. {write_sentence(number)}"}
            elif number % 5 < 4:
                output = {"stdout": "ok\n" * 20}
                tool = {"command": f"make check-{number % 37}"}
                kind = "PostToolUse"
                payload = {
                    "tool_name": "Bash",
                    "tool_input": tool,
                    "tool_response": output,
                    "tool_use_id": f"t{number}",
                }
            answer = recorder.answer(
                {"client": "claude", "event": kind, "payload": common | payload, "at": time.time()}
            )
            if kind == "UserPromptSubmit":
                sizes.append(count(answer.get("hookSpecificOutput", {}).get("additionalContext", "")))
        spent = (time.process_time() - began) / DAY_EVENTS * 1000
    size = sum(path.stat().st_size for path in home.folder.glob("memory.db*")) / 1e6
    sys.stdout.write(
        f"a day of {DAY_EVENTS} events: {size:.1f} MB, {spent:.0f} ms CPU an event,"
        f" {statistics.mean(sizes):.0f} tokens a prompt, at most {max(sizes)}\n"
    )


def main(items: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "project"
        folder.mkdir()
        large, day = ConnectHome(Path(root) / "large").prepare(), ConnectHome(Path(root) / "day").prepare()
        measure_day(day, folder)
        fill(large, folder, items)
        measure_prompts(large, folder)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
