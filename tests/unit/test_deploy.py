"""The examples for a deployment are true: commands and settings exist, and real servers take what they are given."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import servers
import yaml
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder
from redis_server import start_redis

from engrain import Memory
from engrain.cli.main import root
from engrain.config import read_toml
from engrain.core.errors import ConfigError
from engrain.stores.redis import RedisStore
from engrain.stores.urls import parse_redis_url, parse_vector_url

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDES = ("deploy", "use-postgres", "use-redis", "use-a-vector-server", "monitor", "back-up-and-restore")
PAGE = "\n".join((ROOT / "docs" / "how-to" / f"{name}.md").read_text() for name in GUIDES)
UNITS = sorted([*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")])
# What the engines and the system read themselves.
FOREIGN = {"POSTGRES_DB", "POSTGRES_PASSWORD", "QDRANT__SERVICE__API_KEY", "PGPASSWORD", "PATH", "ENGRAIN_DB_PASSWORD"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def unit(path: Path) -> list[tuple[str, str, str]]:
    """(section, key, value); a key may stand several times."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(path)
    lines, section = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            assert parser.has_section(section)
        elif line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            assert sign, line
            lines.append((section, key, value))
    return lines


def commands(text: str) -> list[list[str]]:
    """Every call of engrain in a shell line, a unit or a page."""
    found = re.findall(r"(?:^|[\s;'\"/])(engrain [a-z][^;&|'\n]*)", text, re.MULTILINE)
    return [shlex.split(one, comments=True)[1:] for one in found]


def known(words: list[str]) -> bool:
    """Whether the program takes this command with these flags."""
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    asked = CliRunner().invoke(root, [words[0], "--help"])
    return asked.exit_code == 0 and all(flag in asked.output or flag in ("--store", "--user") for flag in flags)


def test_every_command_of_the_units_exists() -> None:
    called = [
        words for path in UNITS for _, key, value in unit(path) if key == "ExecStart" for words in commands(value)
    ]
    assert {words[0] for words in called} == {"maintain", "doctor", "backup"}
    assert all(map(known, called))


def test_the_units_have_the_sections_of_their_kind() -> None:
    for path in UNITS:
        sections = {section for section, _, _ in unit(path)}
        assert {"service": "Service", "timer": "Timer"}[path.suffix[1:]] in sections
        assert sections <= {"Unit", "Service", "Timer", "Install"}


def test_every_command_of_the_compose_file_exists(services: dict[str, Any]) -> None:
    called = commands(" ".join(services["maintenance"]["command"]))
    assert [words[0] for words in called] == ["maintain", "doctor"]
    assert all(map(known, called))


def test_every_variable_is_one_that_the_program_reads(services: dict[str, Any]) -> None:
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    given = {name for one in services.values() for name in one.get("environment", {})}
    for path in UNITS:
        given |= {value.partition("=")[0] for _, key, value in unit(path) if key == "Environment"}
    own = given - FOREIGN
    assert own >= {"ENGRAIN_STORE", "QDRANT_API_KEY"}
    for name in own:
        # A vector server's key is read as SCHEME_API_KEY.
        assert name in source or (name == "QDRANT_API_KEY" and "}_API_KEY" in source), name


def test_the_settings_name_servers_of_the_compose_file(services: dict[str, Any]) -> None:
    chosen = read_toml(DEPLOY / "engrain.toml")
    for url in (chosen.store, chosen.episodic, chosen.sessions, chosen.tasks, chosen.vectors):
        assert url
        assert re.match(r"\w+://(?:\w+@)?(\w+):", url)[1] in services  # type: ignore[index]
    assert parse_redis_url(str(chosen.episodic)).timeout == 2
    assert parse_vector_url(str(chosen.vectors), 0).port == 6333
    assert services["maintenance"]["environment"]["ENGRAIN_STORE"].endswith("/engrain.toml")
    assert any("engrain.toml" in volume for volume in services["maintenance"]["volumes"])


def test_the_journal_s_redis_keeps_what_a_journal_needs_and_the_other_does_not(services: dict[str, Any]) -> None:
    for name, strict in (("journal", True), ("redis", False)):
        program, *flags = map(str, services[name]["command"])
        assert program == "redis-server"
        server = start_redis(*flags)
        store = RedisStore(server.url)
        if strict:
            assert store.journal.tasks
        else:
            with pytest.raises(ConfigError, match="appendfsync everysec"):
                _ = store.journal
            assert [one.state for one in store.check()] == ["pass", "pass"]
        store.close()
        server.stop()


def test_a_memory_opens_as_the_role_that_the_script_makes(services: dict[str, Any]) -> None:
    assert any("postgres.sql" in volume for volume in services["postgres"]["volumes"])
    server = servers.postgres()
    psql = [servers._binaries() / "psql", server.url("postgres"), "-v", "ON_ERROR_STOP=1"]
    try:
        environment = {**os.environ, "ENGRAIN_DB_PASSWORD": "it's a secret"}
        subprocess.run(
            [*psql, "-f", DEPLOY / "postgres.sql"], env=environment, check=True, capture_output=True, timeout=180
        )
        with Memory(f"{server.url('engrain')}?schema=deploy", user="ana", embedder=HashEmbedder()) as memory:
            id = memory.remember("Ana lives in Lima.")
            assert memory.recall("Where does Ana live?", min_relevance=0.0).hits[0].item.id == id
            # The servers of tests run without fsync.
            assert [one.name for one in memory.store.doctor(memory.scope) if one.state == "fail"] == ["power cut"]
    finally:
        server.run("drop schema if exists deploy cascade", "drop owned by engrain cascade", "drop role engrain")


# The page


def test_every_command_on_the_page_exists() -> None:
    text = "\n".join(re.findall(r"^    (.*)$", PAGE, re.MULTILINE))
    called = commands(text) + commands("\n".join(re.findall(r"`(engrain [^`]+)`", PAGE)))
    assert len(called) > 5
    for words in called:
        assert known(words), words


def test_every_settings_block_on_the_page_can_be_read(tmp_path: Path) -> None:
    blocks = [dedent(one) for one in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    assert len(blocks) >= 2
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.toml"
        path.write_text(block)
        read_toml(path)
        assert tomllib.loads(block)["stores"]["default"]


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"deploy/[\w.-]+", PAGE))
    assert {f"deploy/{path.name}" for path in DEPLOY.iterdir() if path.name != "Dockerfile"} <= named
    assert all((ROOT / name).exists() for name in named if not name.endswith((".md", ".env")))
