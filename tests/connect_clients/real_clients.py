"""Run the real coding agents without a login, each against the model server."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

BIN_VARIABLE = "CODING_CLIENTS"  # the folder node_modules/.bin in which npm installed them
NAMES = ("claude", "codex", "gemini", "copilot", "opencode")
LIMIT_SECONDS = 400
# How much longer than for a user a hook may wait: other programs may run on this machine.
PATIENCE_VARIABLE = "CODING_PATIENCE"
PATIENCE = float(os.environ.get(PATIENCE_VARIABLE, "4"))


def find_client(name: str) -> Path | None:
    folder = os.environ.get(BIN_VARIABLE)
    path = Path(folder) / name if folder else None
    return path if path and path.exists() else None


@dataclass(frozen=True)
class Machine:
    """A user's folder, a repository and a model."""

    user_folder: Path
    project: Path
    engrain_home: Path
    url: str
    patience: float = PATIENCE

    def prepare(self) -> None:
        """Write the settings that let each client work without a login, in a repository that it trusts."""
        lines = ['model = "fake"', 'model_provider = "fake"', "", "[model_providers.fake]", 'name = "fake"']
        lines += [f'base_url = "{self.url}/v1"', 'wire_api = "responses"', 'env_key = "FAKE_KEY"', ""]
        lines += [f'[projects."{self.project}"]', 'trust_level = "trusted"', ""]
        self._write(".codex/config.toml", "\n".join(lines))
        gemini = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
        }
        self._write(".gemini/settings.json", json.dumps(gemini))
        provider = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": f"{self.url}/v1", "apiKey": "x"}}
        opencode = {
            "provider": {"fake": provider | {"models": {"fake": {}}}},
            "model": "fake/fake",
            "autoupdate": False,
        }
        self._write(".config/opencode/opencode.json", json.dumps(opencode | {"small_model": "fake/fake"}))
        self._write(".copilot/config.json", json.dumps({"trusted_folders": [str(self.project)]}))
        self._write(".claude.json", json.dumps({"hasCompletedOnboarding": True, "autoUpdates": False}))

    def _write(self, name: str, text: str) -> None:
        path = self.user_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self) -> dict[str, str]:
        kept = ("PATH", "PYTHONPATH", "LANG", "TMPDIR")
        return {name: os.environ[name] for name in kept if name in os.environ} | {
            "HOME": str(self.user_folder),
            "ENGRAIN_HOME": str(self.engrain_home),
            "ENGRAIN_HOOK_PATIENCE": str(self.patience),
            "CI": "1",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "fake-key",
            "MCP_TIMEOUT": "120000",  # a busy machine takes long to start the server
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "FAKE_KEY": "x",
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{self.url}/v1",
            "COPILOT_MODEL": "fake",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }

    def run(self, name: str, prompt: str) -> subprocess.CompletedProcess[str]:
        """Run one session with one prompt."""
        commands = {
            "claude": ["-p", prompt, "--allowedTools", "Bash"],
            "codex": ["exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust",
                      "--dangerously-bypass-approvals-and-sandbox", prompt],
            "gemini": ["--yolo", "-p", prompt],
            "copilot": ["-p", prompt, "--allow-all-tools", "--no-auto-update"],
            "opencode": ["run", prompt],
        }  # fmt: skip
        binary = find_client(name)
        assert binary is not None, f"{name} is not installed"
        return subprocess.run(
            [str(binary), *commands[name]], cwd=self.project, env=self.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
