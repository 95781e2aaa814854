"""The code and the commands on the pages run, and print what the pages show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from engrain.cli.main import root
from engrain.core.errors import BackendMissing

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A fence ```python, optionally followed by a fence ```text with its output.
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
# On a page with a fence ```console a Python block is a file, named in its first line, and the commands use it.
CONSOLE = re.compile(r"```(python|console)\n(.*?)```", re.DOTALL)
FILE = re.compile(r"# ([\w/]+\.py)\n")
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# Commands in indented lines, in shell fences and between backticks.
SHELL = re.compile(r"^(?:    |\$ )(?:\w+=\S+ )*(engrain .*)$|`(engrain [a-z][^`\n]*)`", re.MULTILINE)

# A line of a shell that runs a file of the page. With -u the program is one that dies, in a process of its own.
PROGRAM = re.compile(r"python (\w+\.py)((?: (?:\w+|\"[^\"$]*\"))*)")

# One process for all pages, because loading the model takes longer than most of them. A page has a folder of its own,
# and each block has its own names, as if it stood in a file of its own. A file of the page gets its arguments.
RUN = """
import gc, io, json, os, sys, traceback
answers = sys.stdout
for line in sys.stdin:
    folder, blocks, sys.argv = json.loads(line)
    os.chdir(folder)
    printed, error = [], ""
    try:
        for n, code in enumerate(blocks):
            sys.stdout = io.StringIO()
            try:
                exec(compile(code, f"<block {n}>", "exec"), {"__name__": "__main__"})
            except SystemExit as end:
                if not sys.argv[0]:
                    raise
                print(end)
            gc.collect()
            printed.append(sys.stdout.getvalue())
    except BaseException:
        error = traceback.format_exc()
    for name in [name for name, one in sys.modules.items() if str(getattr(one, "__file__", "")).startswith(folder)]:
        del sys.modules[name]  # files of the page: another page, or another program, reads its own
    print(json.dumps([printed, error]), file=answers, flush=True)
"""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAIN_")}
    return {**own, "PATH": f"{Path(sys.executable).parent}:{own['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"}


def with_python(page: Path) -> bool:
    """Those of a framework run in its environment: tests/integrations/test_pages_of_frameworks.py."""
    text = page.read_text()
    return page.parent.name != "integrations" and "```console" not in text and BLOCK.search(text) is not None


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(
        command, env=environment(), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        yield started


@pytest.mark.parametrize("page", list(filter(with_python, PAGES)), ids=name)
def test_code_blocks_run_one_after_another_and_print_what_is_shown(
    page: Path, tmp_path: Path, process: subprocess.Popen[str]
) -> None:
    blocks = BLOCK.findall(page.read_text())
    printed = run_blocks(process, tmp_path, [code for code, _ in blocks], [""])
    for (code, shown), actual in zip(blocks, printed, strict=True):
        if shown:
            assert mask(actual) == mask(shown), code


def run_blocks(process: subprocess.Popen[str], folder: Path, blocks: list[str], argv: list[str]) -> list[str]:
    """Return what each block prints."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([str(folder), blocks, argv]) + "\n")
    process.stdin.flush()
    printed, error = json.loads(process.stdout.readline())
    assert not error, error
    return list(printed)


@pytest.mark.parametrize("page", [page for page in PAGES if "```console" in page.read_text()], ids=name)
def test_console_blocks_print_what_is_shown(
    page: Path, tmp_path: Path, process: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, block in CONSOLE.findall(page.read_text()):
        if kind == "python":
            file = FILE.match(block)
            assert file, f"a Python block on a page of commands names its file in the first line:\n{block}"
            (tmp_path / file[1]).write_text(block)
            continue
        for command, shown in COMMAND.findall(block):
            if program := PROGRAM.fullmatch(command):
                code = (tmp_path / program[1]).read_text()
                printed = "".join(run_blocks(process, tmp_path, [code], shlex.split(command)[1:]))
            else:
                printed = run_command(command)
            assert mask(printed) == mask(shown), command


def run_command(command: str) -> str:
    """Run a line of a shell and return what it prints. A command of ours runs in this process, which has the model."""
    if command.startswith("engrain ") and not set("|<>&;$") & set(command):
        return CliRunner().invoke(root, shlex.split(command)[1:], env=environment()).output
    return subprocess.run(
        command, shell=True, executable="/bin/bash", env=environment(), text=True, timeout=180,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ).stdout  # fmt: skip


def mask(text: str) -> str:
    """Hide dates, ids and a line's padding, which differ from run to run. Everything else must be equal."""
    text = re.sub(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:[\d.]+\S*)?)?", "DATE", text)
    text = re.sub(r"\b[0-9a-hjkmnp-tv-z]{26}\b", "ID", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_readme_shows_code_with_its_output() -> None:
    assert any(printed for _, printed in BLOCK.findall((ROOT / "README.md").read_text()))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    for line, quoted in SHELL.findall(page.read_text()):
        # An ellipsis or a pipe ends what the program itself gets.
        call = re.split(r"[|;&]| > |\s#", (line or quoted).replace("…", ""))[0]
        verbs = shlex.split(call)[1:]
        while verbs and verbs[0] in ("--store", "--user", "--agent", "--tenant"):
            verbs = verbs[2:]
        if not verbs or verbs[0].isupper() or verbs[0].startswith("-"):
            continue
        helped = CliRunner().invoke(root, [verbs[0], "--help"])
        assert helped.exit_code == 0, call
        pages = helped.output
        if len(verbs) > 1 and re.search(rf"^  {re.escape(verbs[1])} ", pages, re.MULTILINE):
            pages += CliRunner().invoke(root, [*verbs[:2], "--help"]).output
        flags = [word.partition("=")[0] for word in verbs if re.match(r"--\w", word)]
        assert [flag for flag in flags if flag not in pages] == [], call


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(#[^)]*)?\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{name(page)}: {target}"
            if anchor and there.suffix == ".md":
                assert anchor[1:] in anchors(there.read_text()), f"{name(page)}: {target}{anchor}"


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_map_names_every_page() -> None:
    docs = ROOT / "docs"
    text = "".join((docs / name).read_text() for name in ("README.md", "integrations.md"))
    linked = {(docs / target).resolve() for target in re.findall(r"\]\(([^)#:]+)", text)}
    pages = {one.resolve() for one in docs.glob("*/*.md") if one.parent.name != "decisions"}
    assert sorted(map(name, pages - linked)) == []


def test_every_path_on_the_page_of_the_architecture_exists() -> None:
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    paths = re.findall(r"`([\w/-]+/(?:[\w]+\.(?:py|toml))?)`", page)
    assert len(paths) > 30
    assert [one for one in paths if not (ROOT / "src" / "engrain" / one).exists() and not (ROOT / one).exists()] == []


def test_every_import_on_the_pages_can_be_made() -> None:
    for page in PAGES:
        for module, names in re.findall(
            r"^\s*from (engrain(?:\.\w+)*) import ([\w, ]+)", page.read_text(), re.MULTILINE
        ):
            try:
                found = import_module(module)
            except BackendMissing:  # an integration: make test-integrations runs its page
                assert module.startswith("engrain.integrations."), module
                continue
            assert [one for one in names.replace(" ", "").split(",") if not hasattr(found, one)] == [], name(page)


def test_the_page_of_extras_has_a_row_for_each() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs/reference/extras.md").read_text(), re.MULTILINE)
    assert listed == [*extras], "run: python tools/extras_page.py"
