"""The command line keeps its promises: every command, both forms of output, every way to end."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from examples import for_each

from engrain import Memory
from engrain.cli.command import parse_metadata, parse_where
from engrain.cli.main import COMMANDS, root
from engrain.cli.output import escape

QUESTION = "What is her favourite programming language?"
ENGRAIN = (sys.executable, "-m", "engrain")
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("ENGRAIN_")} | {"COLUMNS": "80"}
Run = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def run(store: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in [name for name in os.environ if name.startswith("ENGRAIN_")]:
        monkeypatch.delenv(name)

    def call(*args: str, given: str | bytes | None = None, code: int = 0, **extra: Any) -> Result:
        result = CliRunner().invoke(root, ["--store", str(store), "--user", "ana", *args], input=given, **extra)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


def told(run: Run, *args: str, **extra: Any) -> Any:
    return json.loads(run(*args, "--json", **extra).stdout)


def kept(run: Run, *args: str, **extra: Any) -> str:
    return str(told(run, "remember", *args, **extra)["id"])


def listed(run: Run, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("list", "--json", *args).stdout.splitlines()]


def shell(*args: str, **extra: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*ENGRAIN, *args], capture_output=True, env=CLEAN | extra.pop("env", {}), timeout=180, **extra
    )


def cpu_seconds(*args: str) -> float:
    """What a run costs, whatever else this machine is busy with."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shell(*args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# Help and start-up


@for_each("name", [name for name in COMMANDS if name != "bench"])
def test_help_of_every_command_teaches(name: str) -> None:
    shown = CliRunner().invoke(root, [name, "--help"]).output
    assert f"engrain {name}" in re.split("Examples?:", shown)[1]
    assert "Prints:" in shown
    assert "--json" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", [("bench",), ("bench", "recall")])
def test_help_of_the_benchmark_has_examples(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(root, [*words, "--help"]).output
    assert f"  engrain {' '.join(words)}" in re.split("Examples?:", shown)[1]


def test_engrain_alone_is_a_short_overview(tmp_path: Path) -> None:
    shown = CliRunner().invoke(root, ["--store", str(tmp_path / "none.db")])
    assert shown.exit_code == 0
    assert "engrain demo" in shown.output
    assert "does not exist yet" in shown.output
    assert len(shown.output.splitlines()) <= 14


def test_help_is_quick_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys\nfrom engrain.cli import main\nsys.argv = ['engrain', '--help']\n"
        "try: main()\nexcept SystemExit: print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "onnxruntime", "apsw", "rich", "orjson"} & set(loaded)
    assert not {"engrain.memory", "engrain.core.model.plans", "engrain.core.model.messages"} & set(loaded)
    assert min(cpu_seconds("--help") for _ in range(5)) <= 0.3


def test_recall_with_the_local_embedder_loads_no_http_client(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", background=False) as memory:
        memory.remember("Ana likes tea.")
    code = (
        f"import sys\nfrom engrain.cli import main\nsys.argv = ['engrain', '--store', {str(tmp_path / 'agent.db')!r}, "
        "'recall', 'tea']\ntry: main()\nexcept SystemExit: print(*sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Ana likes tea." in shown
    assert "onnxruntime" in shown.split()
    assert "httpx" not in shown.split()


def test_version() -> None:
    from engrain import __version__

    assert CliRunner().invoke(root, ["--version"]).output == f"engrain {__version__}\n"


# Keep


def test_remember_takes_an_argument_a_dash_or_a_pipe(run: Run) -> None:
    kept(run, "Ana likes tea.")
    kept(run, "-", given="Ana likes coffee.\n")
    kept(run, given="Zoë möchte Kakao.\n\n".encode())
    assert [item["text"] for item in listed(run)] == ["Zoë möchte Kakao.\n", "Ana likes coffee.", "Ana likes tea."]


def test_remember_prints_the_id_alone_when_piped(run: Run) -> None:
    id = run("remember", "Ana likes tea.").stdout.strip()
    assert told(run, "get", id)["text"] == "Ana likes tea."


def test_remember_passes_every_option_on(run: Run) -> None:
    id = kept(
        run, "Quito", "--importance", "0.9", "--slot", "user.city", "--source", "form", "-m", "n=3", "-m", "who=Bo",
        "-m", 'code="7"', "--occurred-at", "2026-06-01", "--request-id", "r1",
    )  # fmt: skip
    item = told(run, "get", id)
    assert item["metadata"] == {"n": 3, "who": "Bo", "code": "7"}
    assert (item["importance"], item["slot"], item["sources"][0]["name"]) == (0.9, "user.city", "form")
    assert item["occurred_at"] == "2026-06-01T00:00:00+00:00"
    again = ("Quito", "--slot", "user.city", "--occurred-at", "2026-06-01", "--request-id", "r1")
    assert kept(run, *again) == id
    assert "another write" in run("remember", "Lima", "--request-id", "r1", code=1).output


def test_a_turn_of_a_session_has_its_place(run: Run) -> None:
    for text in ("Hello.", "Good morning."):
        id = kept(run, text, "--session", "monday", "--speaker", "Ana", "--role", "user")
    item = told(run, "get", id)
    assert (item["session"], item["place"], item["speaker"], item["role"]) == ("monday", 1, "Ana", "user")
    assert run("remember", "Hello.", "--speaker", "Ana", code=2).output.startswith("Usage:")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (b"", "EmptyText"),
        (b" \n", "EmptyText"),
        (b"caf\xe9", "BadText"),
        (b"a\x00b", "BadText"),
        (b"x" * 1_000_001, "TooLarge"),
    ],
)
def test_bad_text_is_a_typed_error_and_nothing_is_kept(run: Run, given: bytes, kind: str) -> None:
    kept(run, "Ana likes tea.")
    assert told(run, "remember", "-", given=given, code=1)["error"]["type"] == kind
    assert len(listed(run)) == 1


def test_an_argument_that_is_not_utf8_is_refused(store: Path) -> None:
    done = subprocess.run([*ENGRAIN, "--store", str(store), "remember", b"caf\xe9"], capture_output=True, env=CLEAN)
    assert done.returncode == 1
    assert b"lone surrogate" in done.stderr
    assert b"Traceback" not in done.stderr


def test_correct_pin_and_explain(run: Run) -> None:
    id = kept(run, "Ana lives in Lima.")
    new = told(run, "correct", id, "Ana lives in Quito.")
    assert new["corrected"] == id
    assert told(run, "pin", new["id"]) == {"id": new["id"], "pinned": True}
    assert told(run, "explain", new["id"])["item"]["pinned"] is True
    assert told(run, "pin", new["id"], "--off")["pinned"] is False
    shown = run("explain", new["id"]).output
    assert "Ana lives in Quito." in shown
    assert "trust" in shown


def test_the_beginning_of_an_id_is_enough(run: Run) -> None:
    id = kept(run, "Ana likes tea.")
    assert told(run, "get", id[:20])["id"] == id
    assert told(run, "get", "zzzzzzzz", code=1)["error"]["type"] == "NotFound"


def test_slots_and_relations(run: Run) -> None:
    kept(run, "Lima", "--slot", "user.city", "--occurred-at", "2025-03-01")
    kept(run, "Quito", "--slot", "user.city", "--occurred-at", "2026-06-01")
    assert told(run, "slot", "user.city")["text"] == "Quito"
    assert told(run, "slot", "user.city", "--as-of", "2025-12-24")["text"] == "Lima"
    assert [item["text"] for item in told(run, "slots", "user.")] == ["Quito"]
    assert told(run, "slot", "user.age", code=1)["error"]["type"] == "NotFound"
    told(run, "relate", "Ana", "works at", "Acme")
    assert [item["relation"]["object"] for item in told(run, "about", "ana")] == ["Acme"]
    assert "No relation" in run("about", "Bob").output


# Find


def test_recall_finds_by_meaning_and_explains(run: Run) -> None:
    id = kept(run, "Ana prefers Python over JavaScript.")
    kept(run, "The release train leaves every Tuesday.")
    found = told(run, "recall", QUESTION, "--explain")
    assert found["hits"][0]["item"]["id"] == id
    assert found["hits"][0]["score_parts"]["meaning"] > 0
    shown = run("recall", QUESTION, "--explain").output
    assert "Ana prefers Python" in shown
    assert id in shown
    assert "added to the score" in shown
    assert "meaning" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_recall_may_find_nothing_and_says_so(run: Run) -> None:
    kept(run, "The release train leaves every Tuesday.")
    assert told(run, "recall", "How tall is the Eiffel Tower?")["hits"] == []
    assert "Nothing" in run("recall", "How tall is the Eiffel Tower?").output


def test_recall_takes_its_options(run: Run) -> None:
    for number in range(4):
        kept(run, f"Ana drank {number + 2} cups of tea.", "-m", f"cups={number + 2}")
    hits = told(run, "recall", "How much tea?", "-n", "2", "--min-relevance", "0")["hits"]
    assert len(hits) == 2
    hits = told(run, "recall", "How much tea?", "--min-relevance", "0", "--where", "metadata.cups >= 4")["hits"]
    assert {hit["item"]["metadata"]["cups"] for hit in hits} == {4, 5}
    assert told(run, "recall", "tea", "--budget", "0", "--min-relevance", "0")["hits"] == []
    assert "cups of tea" in run("recall", "How much tea?", "--min-relevance", "0", "--prompt").output


def test_list_filters_pages_and_shows_history(run: Run) -> None:
    for number in range(3):
        kept(run, f"Note {number}.", "--importance", str(number / 2), "--slot", "note")
    assert [item["text"] for item in listed(run)] == ["Note 2."]
    assert len(listed(run, "--history", "--limit", "0")) == 3
    assert [item["text"] for item in listed(run, "--history", "--where", "importance < 0.4")] == ["Note 0."]
    assert len(run("list", "--history", "-n", "2").output.splitlines()) == 4
    assert told(run, "list", "--where", "colour = red", code=1)["error"]["type"] == "UnknownKey"
    assert told(run, "list", "--limit", "-1", code=1)["error"]["type"] == "InvalidInput"


def test_scopes_are_a_wall(run: Run) -> None:
    kept(run, "Ana likes tea.")
    assert listed(run, "--user", "bob") == []
    assert [item["text"] for item in listed(run, "--user", "ana")] == ["Ana likes tea."]


@for_each(
    ("text", "wanted"),
    [
        ("importance >= 0.5", {"importance": {">=": 0.5}}),
        ("importance>=0.5", {"importance": {">=": 0.5}}),
        ("slot starts with user.", {"slot": {"starts with": "user."}}),
        ("source = 7", {"source": {"=": "7"}}),
        ("metadata.n = 7", {"metadata.n": {"=": 7}}),
        ('metadata.n = "7"', {"metadata.n": {"=": "7"}}),
        ("metadata.n in 1, 2", {"metadata.n": {"in": [1, 2]}}),
        ('kind in ["fact", "message"]', {"kind": {"in": ["fact", "message"]}}),
        ("pinned = yes", {"pinned": {"=": True}}),
        ("slot exists", {"slot": {"exists": True}}),
        ("slot exists false", {"slot": {"exists": False}}),
        ("slot = null", {"slot": {"=": None}}),
        ("text contains a = b", {"text": {"contains": "a = b"}}),
        ("session not in a,b", {"session": {"not in": ["a", "b"]}}),
        ('{"kind": "fact", "importance": {">=": 0.5}}', {"kind": {"=": "fact"}, "importance": {">=": 0.5}}),
    ],
)
def test_where_reads_what_people_type(text: str, wanted: object) -> None:
    assert parse_where([text]) == wanted


def test_several_wheres_narrow_down() -> None:
    assert parse_where(["importance > 0.1", "importance < 0.9"]) == {"importance": {">": 0.1, "<": 0.9}}
    assert parse_where([]) is None
    assert parse_metadata(["a=1", "b=x=y"]) == {"a": 1, "b": "x=y"}


@pytest.mark.parametrize("text", ["importance", "{broken", "", "= 5", "importance ~ 5"])
def test_an_unreadable_where_is_an_error(run: Run, text: str) -> None:
    kept(run, "Ana likes tea.")
    assert told(run, "list", "--where", text, code=1)["error"]["type"] == "InvalidInput"


# Forget


def test_forget_removes_one_and_says_the_bytes_are_gone(run: Run, store: Path) -> None:
    id = kept(run, "The door code is 4417-kestrel.")
    assert told(run, "forget", id) == {"ids": [id], "marked": [], "pending": False}
    assert not any(b"4417-kestrel" in file.read_bytes() for file in store.parent.iterdir())
    assert told(run, "forget", id, code=1)["error"]["type"] == "NotFound"


def test_forget_by_filter_needs_a_yes_for_several(run: Run) -> None:
    for text in ("One.", "Two.", "Three."):
        kept(run, text, "--source", "page")
    assert told(run, "forget", "-w", "source = page", code=1)["error"]["type"] == "Conflict"
    assert len(listed(run)) == 3
    assert len(told(run, "forget", "-w", "source = page", "--yes")["ids"]) == 3
    assert "Nothing matches" in run("forget", "-w", "source = page").output
    assert "Give one id" in run("forget", code=2).output


@pytest.mark.parametrize(("answer", "left"), [(b"n\n", 2), (b"y\n", 0)])
def test_forget_asks_at_a_terminal(run: Run, store: Path, answer: bytes, left: int) -> None:
    for text in ("One.", "Two."):
        kept(run, text, "--source", "page")
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = shell("--store", str(store), "--user", "ana", "forget", "-w", "source = page", stdin=theirs)
    assert b"Remove 2 items for good?" in done.stderr
    assert done.returncode == (1 if left else 0)
    assert len(listed(run)) == left


# Import


def lines(*values: object) -> str:
    return "".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values)


def test_load_twice_adds_nothing(run: Run) -> None:
    notes = lines(
        {"text": "Ana likes tea."},
        {"text": "Ana met Bo.", "occurred_at": "2026-01-01"},
        {"text": "Hello.", "position": {"session": "monday", "speaker": "Ana"}},
        {"text": "Lima", "slot": "user.city"},
        {"text": "Quito", "slot": "user.city"},
        {"text": "Hello.", "position": {"session": "monday", "speaker": "Ana"}},
    )
    first = told(run, "load", "-", given=notes)
    assert (first["read"], first["added"], first["replaced"], first["bad"]) == (6, 5, 1, [])
    before = listed(run, "--history")
    run("load", "-", given=notes)
    run("load", "-", given=lines("") + notes + lines({"text": "Bo likes coffee.", "occurred_at": "2026-02-02"}))
    after = listed(run, "--history")
    assert len(before) == 6
    assert [item["text"] for item in after] == ["Bo likes coffee.", *(item["text"] for item in before)]
    assert {item["sources"][0]["kind"] for item in after} == {"import"}


def test_load_writes_nothing_if_a_line_is_bad(run: Run) -> None:
    kept(run, "Ana likes tea.")
    raw = b"\xef\xbb\xbf" + lines({"text": "One."}, "").encode() + b'{"text": "caf\xe9"}\n'
    raw += lines('{"text": "\\ud800"}', {"text": ""}, {"txt": "x"}, "{", '{"text": "x", "importance": NaN}', 7).encode()
    answer = told(run, "load", "-", given=raw, code=1)
    assert [one["line"] for one in answer["bad"]] == [3, 4, 5, 6, 7, 8, 9]
    kinds = ["BadText", "BadText", "EmptyText", "UnknownKey", "InvalidInput", "InvalidInput", "InvalidInput"]
    assert [one["type"] for one in answer["bad"]] == kinds
    assert not answer["written"]
    assert len(listed(run)) == 1
    shown = run("load", "-", given=raw, code=1).output
    assert "line 3: not UTF-8: byte 14 of the line is 0xe9." in shown
    assert "Nothing was written" in shown
    assert told(run, "load", "-", "--skip-bad", given=raw)["added"] == 1


def test_load_reports_a_line_that_is_too_long_and_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.transfer.readers.MAX_NOTE_LINE_BYTES", 100)
    notes = lines({"text": "One."}, {"text": "x" * 1000}, {"text": "Two."}, {"text": "y" * 1000}).rstrip("\n")
    answer = told(run, "load", "-", "--skip-bad", given=notes)
    assert [(one["line"], one["type"]) for one in answer["bad"]] == [(2, "TooLarge"), (4, "TooLarge")]
    assert answer["added"] == 2


def test_load_does_not_bring_back_what_was_forgotten(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text(lines({"text": "Ana likes tea."}, {"text": "Bo likes coffee."}))
    run("load", str(file))
    run("forget", "-w", "text contains tea")
    file.write_text(lines({"text": "Ana likes tea."}))
    assert told(run, "load", str(file))["kept_out"] == 1
    assert "forgotten or erased here" in run("load", str(file)).output
    assert [item["text"] for item in listed(run)] == ["Bo likes coffee."]


# The memory itself


def test_status_and_doctor(run: Run) -> None:
    kept(run, "Ana likes tea.")
    assert told(run, "status")["store"]["open_items"] == 1
    assert "1 item" in run("status").output
    answer = told(run, "doctor")
    assert answer["ok"]
    assert [one["number"] for one in answer["findings"]] == list(range(1, 36))
    assert told(run, "doctor", "--rebuild")["rebuilt"] == 1
    assert "✓" in run("doctor").output


def test_status_says_what_is_in_the_memory(run: Run, store: Path) -> None:
    with Memory(store, user="ana", background=False) as memory:
        memory.add_message("user", "Hello.", session="one")
        memory.add_message("user", "Hello.", session="two")
        memory.procedural.learn("deploy", ["build", "ship"])
        with memory.task("order-42", goal="ship it"):
            pass
    assert told(run, "status")["counts"] == {"sessions": 2, "episodes": 2, "procedures": 1, "tasks": 1, "records": 0}
    assert "2 sessions, 2 episodes, 1 procedure, 0 records, 1 task" in run("status").output


def test_what_engrain_keeps_for_itself_is_not_shown_to_people(run: Run, store: Path) -> None:
    with Memory(store, user="ana", background=False) as memory:
        memory.add_message("user", "I live in Lima.", session="one", metadata={"mood": "good"})
        memory.episodic.record_decision("We ship on Friday.", session="one")
        memory.remember("Ana keeps bees.", metadata={"by": "hand", "n": 3})
        memory.end_session()
    shown = run("list").output
    assert "mood=good" in shown
    assert "by=hand · n=3" in shown.replace("\n  ", " ")
    for inner in ("by=gate", "by=digest", "engrain=", "upto="):
        assert inner not in shown
    whole = run("list", "--full").output
    assert "by=gate" in whole
    assert "engrain=" not in whole
    assert any("engrain" in json.loads(one)["metadata"] for one in run("list", "--json").output.splitlines())


def test_doctor_fails_on_what_is_no_store(run: Run, store: Path) -> None:
    store.write_text("This is a diary, not a database. " * 100)
    found = told(run, "doctor", code=1)["findings"]
    assert [one["name"] for one in found if one["state"] == "fail"] == ["integrity"]
    assert {one["state"] for one in found} == {"fail", "unknown"}
    assert "✗" in run("doctor", code=1).output


def test_bench_is_there() -> None:
    assert "recall" in CliRunner().invoke(root, ["bench", "--help"]).output


# How a run ends


def test_a_command_that_reads_makes_no_file(run: Run, store: Path) -> None:
    for args in (["recall", "x"], ["list"], ["status"], ["slot", "a"], ["forget", "cr2pvv0vpt"]):
        assert told(run, *args, code=1)["error"]["type"] == "NotFound"
    assert not store.exists()


def test_errors_are_one_calm_line(run: Run) -> None:
    kept(run, "Ana likes tea.")
    shown = run("get", "unknown-id", code=1)
    assert shown.stdout == ""
    assert shown.stderr.startswith("Error: there is no item 'unknown-id'")
    assert len(shown.stderr.splitlines()) == 1


def test_wrong_usage_ends_with_2(run: Run) -> None:
    assert told(run, "recall", code=2)["error"]["type"] == "UsageError"
    assert "Usage:" in run("recall", code=2).stderr
    run("recal", "x", code=2)
    run("remember", "x", "--importance", "much", code=2)


def test_a_store_url_that_cannot_be_used_is_explained(run: Run) -> None:
    assert told(run, "remember", "x", "--store", "mysql://x", code=1)["error"]["type"] == "ConfigError"


def test_stored_text_cannot_command_the_terminal(run: Run) -> None:
    kept(run, "Look \x1b[31mred\x1b[0m \x07 \u202egnp.")
    shown = run("list", color=True).output
    assert "\\u001b[31mred" in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert escape("line\n\ttab") == "line\n\ttab"


def test_no_colour_without_a_terminal_or_with_no_color(run: Run) -> None:
    kept(run, "Ana likes tea.")
    assert "\x1b" not in run("list").output
    assert "\x1b[2m" in run("list", color=True).output
    assert "\x1b" not in run("list", color=True, env={"NO_COLOR": "1"}).output


def test_a_closed_pipe_is_silent(run: Run, store: Path) -> None:
    run("load", "-", given=lines(*({"text": f"Note {n}.", "metadata": {"pad": "x" * 9_000}} for n in range(30))))
    command = [*ENGRAIN, "--store", str(store), "--user", "ana", "list", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 141


def test_ctrl_c_is_clean(store: Path) -> None:
    command = [*ENGRAIN, "--store", str(store), "remember", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN) as child:
        assert child.stdin is not None
        child.stdin.write(b"Ana likes")
        child.stdin.flush()
        while fcntl.ioctl(child.stdin, termios.FIONREAD, bytes(4)) != bytes(4):  # until it reads
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        said = child.stderr.read()
    assert child.returncode == 130
    assert said.strip() == b"Stopped."


def test_settings_come_from_the_environment_too(store: Path) -> None:
    env = {"ENGRAIN_STORE": str(store), "ENGRAIN_USER": "ana"}
    id = CliRunner().invoke(root, ["remember", "Ana likes tea."], env=env).stdout.strip()
    assert json.loads(CliRunner().invoke(root, ["get", id, "--json"], env=env).stdout)["text"] == "Ana likes tea."
    assert CliRunner().invoke(root, ["list", "--json"], env=env | {"ENGRAIN_USER": "bob"}).stdout == ""


def test_the_memories_of_a_store_are_listed_with_their_owners(run: Run) -> None:
    for owner in ((), ("--agent", "sales"), ("--user", "bob")):
        run(*owner, "remember", "Tea.")
    lines = run("memories").output.splitlines()
    assert lines == ["user=ana: 1 item", "agent=sales, user=ana: 1 item", "user=bob: 1 item"]
    second = json.loads(run("memories", "--json").output.splitlines()[1])
    assert second == {"tenant": None, "agent": "sales", "user": "ana", "items": 1}


def test_the_help_says_which_verbs_print_json_lines(run: Run) -> None:
    told = " ".join(run("--help").output.split())
    named = re.search(r"With --json a command prints one JSON document\. These print JSON Lines, .+?: (.+?)\.", told)
    assert named is not None
    for text in ("Ana likes tea.", "Ana likes coffee."):
        run("remember", text, "--slot", f"user.{len(text)}")
    assert "list" in named[1]
    assert len(run("list", "--json").stdout.splitlines()) == 2
    assert len(json.loads(run("slots", "--json").stdout)) == 2
    for verb in ("memories", "audit", "tasks", "hold"):
        assert verb in named[1]
        assert all(json.loads(line) for line in run(verb, "--json").stdout.splitlines())
