"""The settings on the page for other programs are valid, and start the command."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

from engrain.cli.context import CommandContext
from engrain.cli.main import root

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "use-mcp.md").read_text()
FENCE = re.compile(r"```(json|toml)\n(.*?)```", re.DOTALL)
READ = {"json": json.loads, "toml": tomllib.loads}
SETTINGS = [READ[kind](text) for kind, text in FENCE.findall(PAGE)]


def test_the_page_has_settings_of_each_form() -> None:
    assert [list(one) for one in SETTINGS] == [["mcp_servers"], ["mcpServers"], ["servers"]]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda one: next(iter(one)))
def test_settings_start_the_command(settings: dict[str, Any]) -> None:
    ((_, servers),) = settings.items()
    server = servers["engrain"]
    assert server["command"] == "engrain"
    name, *options = server["args"]
    command, chosen = root.get_command(click.Context(root), name), CommandContext()
    assert command is not None
    command.make_context(name, options, obj=chosen)
    assert (chosen.store, chosen.user) == ("/home/ana/memory.db", "ana")
