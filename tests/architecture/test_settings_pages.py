"""What the pages name is there, by that name and number."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from engrain.config import _TABLES, from_toml
from engrain.core.model.retention import Policies
from engrain.health import CHECKS

DOCS = Path(__file__).parents[2] / "docs"
NUMBERED = re.compile(r"\b(\d+) `([a-z -]+)`")


def test_the_settings_of_the_guide_are_all_there_are_and_can_be_read(tmp_path: Path) -> None:
    block = re.search(r"## Settings.*?```toml\n(.*?)```", (DOCS / "reference" / "settings.md").read_text(), re.DOTALL)
    assert block is not None
    file = tmp_path / "engrain.toml"
    file.write_text(block[1])
    assert from_toml(file).model == "ollama:llama3.2"
    tables = dict(re.findall(r"^\[(\w+)\](.*?)(?=^\[|\Z)", block[1], re.DOTALL | re.MULTILINE))
    assert set(tables) == {*_TABLES, "lifecycle"}
    missing = {f"{table}.{key}" for table, keys in _TABLES.items() for key in keys if key not in tables[table]}
    assert not missing


def test_the_settings_of_the_lifecycle_are_all_on_its_page() -> None:
    block = re.search(r"^    \[lifecycle\]\n(?:    .*\n)+", (DOCS / "how-to" / "maintain.md").read_text(), re.MULTILINE)
    assert block is not None
    assert set(re.findall(r"^    (\w+) +=", block[0], re.MULTILINE)) == {one.name for one in fields(Policies)}


def test_a_point_of_the_doctor_is_called_by_its_number() -> None:
    named = NUMBERED.findall((DOCS / "how-to" / "deploy.md").read_text())
    numbers = {point.name: str(number) for number, point in enumerate(CHECKS, 1)}
    assert len(named) > 10
    assert [(number, name) for number, name in named if numbers.get(name) != number] == []
