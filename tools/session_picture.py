"""Draw docs/images/connect-session.svg: two real coding agents, of which the second knows what the first found out.

Run: CODING_CLIENTS=.clients/node_modules/.bin python tools/session_picture.py
`make test-clients` installs the clients. A scripted model stands in for theirs: it runs `npm test` unless its context
names a command that worked.
"""

from __future__ import annotations

import html
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "connect_clients"))

import model_server  # noqa: E402
from real_clients import Machine, find_client  # noqa: E402

from engrain.connect.connect_home import ConnectHome  # noqa: E402
from engrain.server.resident import stop  # noqa: E402

PICTURE = ROOT / "docs/images/connect-session.svg"
PROMPT = "Run the tests of this project."
FIRST_TRY, WORKS = "npm test", "make check"
WIDTH, LINE, TOP = 860, 20, 58
COLOURS = {"$": "#e6edf3", "#": "#8b949e", " ": "#c9d1d9"}


class TestingModel(model_server.ModelServer):
    """Run the tests: with the command that the context names, else with the usual one, and then with what works."""

    def choose_command(self, body: dict[str, Any]) -> str | None:
        text, done = json.dumps(body), model_server.count_results(body)
        knows = (
            f"`{WORKS}` worked" in text.partition(PROMPT)[0] + text.rpartition(PROMPT)[2] and "engrain-memory" in text
        )
        steps = [WORKS] if knows else [FIRST_TRY, WORKS]
        said = f"`{WORKS}` passes: 42 tests." if knows else f"`{FIRST_TRY}` fails here. `{WORKS}` passes: 42 tests."
        model_server.ANSWER = said
        return steps[done] if PROMPT in text and done < len(steps) else None


def run_sessions(root: Path) -> list[str]:
    project = root / "shop"
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    (project / "package.json").write_text("{}")
    (project / "Makefile").write_text("check:\n\t@echo 42 passed\n")
    model_server.ModelServer = TestingModel  # type: ignore[misc]
    with model_server.serve_model() as model:
        machine = Machine(root / "user", project, root / "home", model.url)
        machine.user_folder.mkdir()
        machine.prepare()
        try:
            lines = ["$ engrain connect claude codex", *_run(machine, "connect", "claude", "codex")]
            for name, title in (("claude", "A session in Claude Code"), ("codex", "The next one, in Codex")):
                shown = {"claude": "claude -p", "codex": "codex exec"}[name]
                done = machine.run(name, PROMPT)
                assert done.returncode == 0, done.stderr
                lines += ["", f"# {title}", f"$ {shown} {PROMPT!r}", *_wrap(done.stdout.strip())]
                time.sleep(10)  # the first event starts the resident process
            return [*lines, "", "$ engrain recap", *_run(machine, "recap")]
        finally:
            stop(ConnectHome(machine.engrain_home).store)


def _run(machine: Machine, *words: str) -> list[str]:
    command = [sys.executable, "-m", "engrain", *words]
    done = subprocess.run(
        command, env=machine.environment(), cwd=machine.project, check=True, capture_output=True, text=True
    )
    kept = [line for line in done.stdout.splitlines() if not line.startswith("  /")]
    return [part for line in kept for part in _wrap(line)]


def _wrap(text: str) -> list[str]:
    return [line[start : start + 96] for line in text.splitlines() for start in range(0, max(1, len(line)), 96)]


def _keep_spaces(text: str) -> str:
    return text.replace("  ", "\u00a0\u00a0")  # browsers join plain ones


def draw(lines: list[str]) -> str:
    height = TOP + LINE * len(lines) + 14
    rows = []
    for number, line in enumerate(lines):
        weight = ' font-weight="bold"' if line.startswith("$") else ""
        colour, text = COLOURS.get(line[:1], COLOURS[" "]), _keep_spaces(html.escape(line))
        rows.append(f'<text x="20" y="{TOP + LINE * number}" fill="{colour}"{weight}>{text}</text>')
    dots = "".join(
        f'<circle cx="{24 + 20 * place}" cy="20" r="6" fill="{colour}"/>'
        for place, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="A terminal: Codex knows the command that Claude Code found before">'
        f'<rect width="100%" height="100%" rx="10" fill="#0d1117"/>{dots}'
        f'<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14"'
        f">{''.join(rows)}</g></svg>\n"
    )


if __name__ == "__main__":
    missing = [name for name in ("claude", "codex") if find_client(name) is None]
    if missing:
        sys.exit(f"{', '.join(missing)} not found: set CODING_CLIENTS.")
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(run_sessions(Path(folder))))
