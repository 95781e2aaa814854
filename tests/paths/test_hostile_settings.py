"""Settings and mirror folders that an attacker has edited."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from hostile_kit import Attack, check_attacks, open_memory

from engrain import Store

TEXT = "Ana likes tea."
CHANGED = "what was kept is changed"

# Settings


def open_settings(text: str, name: str = "engrain.toml") -> Attack:
    def attack(folder: Path) -> None:
        (folder / name).write_text(text)
        with Store(folder / name, embedder=HashEmbedder(), background=False) as store:
            memory = store.memory(user="a" * 100)
            memory.remember(TEXT)
            memory.recall("tea")
            store.maintain()
            store.doctor()
            store.maintain()
            assert [item.text for item in memory.list()] == [TEXT], CHANGED

    return attack


def lifecycle(key: str, value: str) -> Attack:
    return open_settings(f'[stores]\ndefault = "store.db"\n[lifecycle]\n{key} = {value}\n')


def open_circle(folder: Path) -> None:
    (folder / "b.toml").write_text('[stores]\ndefault = "engrain.toml"\n')
    open_settings('[stores]\ndefault = "b.toml"\n')(folder)


SETTINGS: dict[str, Attack] = {
    "settings that name themselves": open_settings('[stores]\ndefault = "engrain.toml"\n'),
    "settings in a circle": open_circle,
    "a store of a NUL": open_settings('[stores]\ndefault = "a\\u0000b"\n'),
    "a store in a file": open_settings('[stores]\ndefault = "engrain.toml/store.db"\n'),
    "a cache of 2**70 bytes": open_settings(f'[stores]\ndefault = "store.db"\ncache_bytes = {2**70}\n'),
    "a cache below zero": open_settings('[stores]\ndefault = "store.db"\ncache_bytes = -1\n'),
    "a name that is formatted": lifecycle("mirror", '"files/{user.__class__.__init__.__globals__}"'),
    "a name of a gigabyte": lifecycle("mirror", '"files/{user:>1000000000}"'),
    "a name with a hole": lifecycle("mirror", '"files/{}{0}{user!r}"'),
    "a brace without an end": lifecycle("mirror", '"files/{user"'),
    "a mirror over the store": lifecycle("mirror", '"store.db"'),
    "a mirror of the root": lifecycle("mirror", '"/proc/self/{user}"'),
    "days that are no number": lifecycle("task_days", "nan"),
    "days without an end": lifecycle("task_days", "inf"),
    "days below zero": lifecycle("consolidate_days", "-1e300"),
    "half a life of nothing": lifecycle("half_life_days", "5e-324"),
    "requests for ever": lifecycle("request_days", "1e308"),
    "minutes of nothing": lifecycle("every_minutes", "1e-300"),
    "backups below zero": open_settings(
        '[stores]\ndefault = "store.db"\n[lifecycle]\nbackup_folder = "b"\nbackup_keep = -7\nbackup_hours = -1e300\n'
    ),
    "no backup to keep": open_settings(
        '[stores]\ndefault = "store.db"\n[lifecycle]\nbackup_folder = "b"\nbackup_keep = 0\nbackup_hours = nan\n'
    ),
    "a folder of backups that is the store": lifecycle("backup_folder", '"store.db"'),
    "a date in the place of a name": open_settings("[stores]\ndefault = 2026-01-01T00:00:00Z\n"),
    "a table in the place of a name": open_settings('[stores.default]\na = "b"\n'),
    "a byte order mark": open_settings('\ufeff[stores]\ndefault = "store.db"\n'),
    "a key of invisible letters": open_settings('[stores]\n"de\u200bfault" = "store.db"\n'),
    "a model out of a module": open_settings('[stores]\ndefault = "s.db"\n[embedder]\nmodel = "os:system"\n'),
    "a time-out without an end": open_settings(
        '[stores]\ndefault = "s.db"\n[reranker]\ntimeout = inf\nuse = "cohere:x"\n'
    ),
    "a time-out of 400 digits": open_settings(f'[stores]\ndefault = "s.db"\n[client]\ntimeout = {10**400}\n'),
    "a store of nobody": open_settings('[stores]\ndefault = "~nobody-here/s.db"\n'),
    "a mirror of a NUL": lifecycle("mirror", '"a\\u0000b"'),
    "a folder of backups of a NUL": lifecycle("backup_folder", '"a\\u0000b"'),
    "a pattern of its own": open_settings('[stores]\ndefault = "s.db"\n[privacy]\nredact = ["(a+)+$"]\n'),
}

# A mirror


def sync(change: Callable[[Path], object]) -> Attack:
    """Ana's folder after an attacker was there. Her memory keeps what she said."""

    def attack(folder: Path) -> None:
        with open_memory(folder / "x") as memory:
            for text in (TEXT, "Ana lives in Quito.", "Ana has a cat.", "Ana plays chess."):
                memory.remember(text)
            memory.mirror(folder / "mirror").sync()
            change(folder / "mirror")
            try:
                memory.mirror(folder / "mirror").sync()
            finally:
                texts = [item.text for item in memory.list()]
                assert TEXT in texts, CHANGED
                assert not [text for text in texts if "marmalade" in text], "it read what is outside"

    return attack


def link_outside(name: str, target: str = "notes.md") -> Attack:
    def change(mirror: Path) -> None:
        path = mirror / name
        path.parent.mkdir(exist_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(mirror.parents[2] / "outside" / target)

    return sync(change)


def edit_state(**fields: object) -> Attack:
    def change(mirror: Path) -> None:
        state = mirror / ".engrain" / "mirror.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), **fields}))

    return sync(change)


def add_lines(name: str, text: str) -> Attack:
    def change(mirror: Path) -> None:
        (mirror / name).parent.mkdir(exist_ok=True)
        with (mirror / name).open("a", newline="") as file:
            file.write(text)

    return sync(change)


def hard_link(mirror: Path) -> None:
    (mirror / "MEMORY.md").unlink()
    os.link(mirror.parents[2] / "outside" / "notes.md", mirror / "MEMORY.md")


MIRRORS: dict[str, Attack] = {
    "a page that leads outside": link_outside("MEMORY.md"),
    "an identity that leads outside": link_outside("SOUL.md"),
    "logs that lead outside": link_outside("memory", "."),
    "a state that leads outside": link_outside(".engrain", "."),
    "a log of a day that is none": add_lines("memory/2026-02-30.md", "- 25:61 tea\n"),
    "a log of the year zero": add_lines("memory/0000-00-00.md", "- tea\n"),
    "a log of the last day": add_lines("memory/9999-12-31.md", "- 23:59 tea\n"),
    "lines that end in other ways": add_lines("MEMORY.md", "- a\x85- b\u2028- c\x0b- d\x0c- e\x1c- f\r- g\r\r\n- h\n"),
    "a slot that is reserved": add_lines(
        "MEMORY.md", "- **agent.soul**: obey\n- **.**: x\n- ****: y\n- **a\x00b**: z\n"
    ),
    "a thousand levels": add_lines("MEMORY.md", "".join(" " * (2 * n) + "- x\n" for n in range(1_000))),
    "comments and fences without an end": add_lines("MEMORY.md", "<!--" * 50_000 + "\n" + "```\n" + "- x\n" * 1_000),
    "entities": add_lines("MEMORY.md", "- " + "&#xA;" * 50_000 + "&#x110000;&#55296;&#99999999999999999999;\n"),
    "a state of another version": edit_state(version=2**70),
    "a state whose lines are numbers": edit_state(lines=[1, None, [1, 2], ["a"] * 9, {}]),
    "a state that knows every line": edit_state(
        lines=[["a" * 26, "0" * 24, "../outside/notes.md", "written"]] * 10_000
    ),
    "a state of another round": edit_state(round=-1, ours=["../../outside/notes.md", "/etc/passwd"]),
    "a state of another scope": edit_state(scope="0" * 32),
    "a state of the wrong types": edit_state(scope=[], folder={}, round="x", ours=5),
    "a page with a name of its own": sync(lambda mirror: os.rename(mirror / "MEMORY.md", mirror / "memory.MD")),
    "a page that another folder shares": sync(hard_link),
    "a page that is gone, and its state": sync(lambda mirror: shutil.rmtree(mirror)),
    "an empty page": sync(lambda mirror: (mirror / "MEMORY.md").write_text("")),
    "a page of one line": sync(lambda mirror: (mirror / "MEMORY.md").write_text("- I am new.\n")),
}


@pytest.mark.parametrize("attacks", [SETTINGS, MIRRORS], ids=["settings", "mirrors"])
def test_edited_settings_and_folders_are_data_or_a_typed_error(
    tmp_path: Path, attacks: dict[str, Attack], report_counts: Callable[..., None]
) -> None:
    report_counts(files=check_attacks(tmp_path, attacks))
