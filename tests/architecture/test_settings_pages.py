"""The reference pages name every setting, command and error, and the right numbers of the doctor's checks."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click

import engrain
from engrain.cli.main import root
from engrain.config import _TABLES, read_toml
from engrain.core.model.retention import Policies
from engrain.health import CHECKS

DOCS = Path(__file__).parents[2] / "docs"
NUMBERED = re.compile(r"\b(\d+) `([a-z -]+)`")


def settings_block() -> str:
    block = re.search(r"```toml\n(.*?)```", (DOCS / "reference" / "settings.md").read_text(), re.DOTALL)
    assert block is not None
    return block[1]


def test_the_settings_page_names_every_setting_and_can_be_read(tmp_path: Path) -> None:
    block = settings_block()
    file = tmp_path / "engrain.toml"
    file.write_text(block)
    assert read_toml(file).model == "ollama:llama3.2"
    assert read_toml(file).lifecycle == Policies(), "the page shows the defaults"
    tables = dict(re.findall(r"^\[(\w+)\](.*?)(?=^\[|\Z)", block, re.DOTALL | re.MULTILINE))
    assert set(tables) == {*_TABLES, "lifecycle"}
    missing = {f"{table}.{key}" for table, keys in _TABLES.items() for key in keys if key not in tables[table]}
    assert not missing
    assert set(re.findall(r"^(\w+) +=", tables["lifecycle"], re.MULTILINE)) == {one.name for one in fields(Policies)}


def test_a_check_of_the_doctor_is_called_by_its_number() -> None:
    named = NUMBERED.findall((DOCS / "how-to" / "monitor.md").read_text())
    numbers = {point.name: str(number) for number, point in enumerate(CHECKS, 1)}
    assert len(named) > 10
    assert [(number, name) for number, name in named if numbers.get(name) != number] == []


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    names = root.list_commands(click.Context(root))
    assert len(names) > 20
    assert [name for name in names if f"`engrain {name}" not in page] == []


def test_every_error_is_on_the_page_of_errors() -> None:
    page = (DOCS / "reference" / "errors.md").read_text()
    public = {name: getattr(engrain, name) for name in engrain.__all__}
    errors = [name for name, one in public.items() if isinstance(one, type) and issubclass(one, BaseException)]
    assert [name for name in errors if f"`{name}`" not in page] == []


def test_every_figure_to_watch_is_in_the_status(tmp_path: Path) -> None:
    pages = "".join((DOCS / "how-to" / f"{name}.md").read_text() for name in ("monitor", "maintain"))
    named = re.findall(r'(?:`|status\(\)\.)(background|store)(?:\.|\[")(\w+)', pages)
    with engrain.Store(tmp_path / "agent.db", background=False) as store:
        status = store.status()
    known = {("background", one) for one in status.background} | {("store", one) for one in status.store}
    named = [(part, one) for part, one in named if part != "store" or not hasattr(engrain.Store, one)]  # its verbs
    assert len(named) > 4
    assert [one for one in named if one not in known] == []
