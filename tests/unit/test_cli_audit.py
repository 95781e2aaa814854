"""What `engrain audit` shows to people and to programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with Memory(path, user="ana", background=False, embedder=HashEmbedder()) as memory:
        memory.remember("Ana lives in Lima.")
    return path


def run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *words])


def test_the_audit_log_is_read_in_words_and_names_the_receipt(store: Path) -> None:
    run(store, "hold", "--user", "ana", "--reason", "case-7")
    run(store, "erase", "--user", "ana", "--yes")
    run(store, "hold", "--user", "ana", "--release")
    done = json.loads(run(store, "erase", "--user", "ana", "--yes", "--json").output)
    lines = run(store, "audit").output.splitlines()
    assert lines[1].endswith("erase refused (user)  reason case-7")
    assert f"erase (user)          receipt {done['receipt']['values']['receipt']}, " in lines[3]


def test_what_was_counted_stands_in_one_column_and_once(store: Path, tmp_path: Path) -> None:
    run(store, "export", str(tmp_path / "ana.jsonl"), "--user", "ana")
    run(store, "hold", "--user", "ana", "--reason", "case-7")
    lines = run(store, "audit").output.splitlines()
    assert len({line.index(told) for line, told in zip(lines, ("format", "format", "reason"), strict=True)}) == 1
    assert all(line.count("format") <= 1 for line in lines)


def test_an_empty_audit_log_is_no_error(store: Path) -> None:
    told = run(store, "audit", "--json")
    assert (told.exit_code, told.stdout) == (0, "")
