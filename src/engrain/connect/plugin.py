"""Write a folder that Claude Code installs as a plugin: the same hooks and server as in its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engrain import __version__
from engrain.connect.clients import NAME, Place, list_claude_hooks, list_claude_server
from engrain.connect.home import write_file
from engrain.core.errors import Conflict

_MANIFEST = ".claude-plugin/plugin.json"
_ABOUT = "A memory of earlier sessions: local, without a key and without a model call."
_AUTHOR = {"name": "engrain"}


def write_plugin(place: Place, folder: Path) -> list[Path]:
    """Write the plugin, or write it anew. Conflict if the folder holds something else."""
    if folder.exists() and not (folder / _MANIFEST).exists() and any(folder.iterdir()):
        raise Conflict(f"{folder} is not empty: nothing was written. Name a new folder.")
    entry = {"name": NAME, "source": "./", "description": _ABOUT}
    files: dict[str, Any] = {
        _MANIFEST: {"name": NAME, "version": __version__, "description": _ABOUT, "author": _AUTHOR},
        ".claude-plugin/marketplace.json": {
            "name": NAME, "description": _ABOUT, "owner": _AUTHOR, "plugins": [entry],
        },
        "hooks/hooks.json": {"hooks": {event: [group] for event, group in list_claude_hooks(place).items()}},
        ".mcp.json": {"mcpServers": {NAME: list_claude_server(place)}},
    }  # fmt: skip
    for name, value in files.items():
        write_file(folder / name, (json.dumps(value, indent=2) + "\n").encode())
    return [folder / name for name in files]
