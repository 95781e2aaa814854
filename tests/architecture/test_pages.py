"""The code and the commands on the pages run, and print what the pages show."""

from __future__ import annotations

import gc
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
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

# A line of a shell that runs a file of the page, here in this process. With -u it is a program that dies.
PROGRAM = re.compile(r"python (\w+\.py)((?: (?:\w+|\"[^\"$]*\"))*)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAIN_")}
    return {**own, "PATH": f"{Path(sys.executable).parent}:{own['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"}


def with_python(page: Path) -> bool:
    """Those of a framework run in its environment: tests/integrations/test_pages_of_frameworks.py."""
    text = page.read_text()
    return page.parent.name != "integrations" and "```console" not in text and BLOCK.search(text) is not None


@pytest.mark.parametrize("page", list(filter(with_python, PAGES)), ids=name)
def test_code_blocks_run_one_after_another_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code, shown in BLOCK.findall(page.read_text()):
        printed = run_code(code)
        if shown:
            assert mask(printed) == mask(shown), code


def run_code(code: str) -> str:
    """Run a block as a program of its own names, in this process, which has the model; return what it prints."""
    known = set(sys.modules)
    with redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            print(end)  # noqa: T201  # into the captured output
        gc.collect()
    for module in set(sys.modules) - known:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(os.getcwd()):
            del sys.modules[module]  # a file of the page: another page reads its own
    return printed.getvalue()


@pytest.mark.parametrize("page", [page for page in PAGES if "```console" in page.read_text()], ids=name)
def test_console_blocks_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for kind, block in CONSOLE.findall(page.read_text()):
        if kind == "python":
            file = FILE.match(block)
            assert file, f"a Python block on a page of commands names its file in the first line:\n{block}"
            (tmp_path / file[1]).write_text(block)
            continue
        for command, shown in COMMAND.findall(block):
            if program := PROGRAM.fullmatch(command):
                monkeypatch.setattr(sys, "argv", shlex.split(command)[1:])
                printed = run_code((tmp_path / program[1]).read_text())
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
