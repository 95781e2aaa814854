"""Tell commands that build, test or run a project from everyday ones, and a failed one from one that worked."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_COMMAND_CHARACTERS = 400
MAX_OUTPUT_CHARACTERS = 4_000
_PREFIX = re.compile(r"\s*(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+|(?:sudo|time|env|nice|exec|command)\s+)*")
_STEP_END = re.compile(r"&&|\|\||;|\n|\|")
# It looks, moves, edits or fetches.
_EVERYDAY = re.compile(
    r"(?:ls|ll|dir|cd|pwd|cat|bat|less|more|head|tail|echo|printf|which|type|whoami|date|env|export|set|history|clear"
    r"|man|help|tree|du|df|wc|sort|uniq|diff|file|stat|touch|mkdir|rmdir|rm|cp|mv|ln|chmod|chown|grep|egrep|rg|ag|ack"
    r"|find|fd|sed|awk|cut|tr|xargs|jq|yq|ps|top|htop|kill|pkill|lsof|ss|netstat|ping|curl|wget|dig|ssh|scp|rsync|tar"
    r"|zip|unzip|gzip|open|code|vim?|nvim|nano|emacs|git|gh|glab|hub|sleep|true|false|test|\[|tee|source|\.(?=\s)"
    r"|systemctl|service|journalctl|nvm|nvidia-smi"
    r"|docker\s+(?:ps|images|logs|exec|inspect|stop|rm|rmi|pull|stats)|docker[ -]compose\s+(?:ps|logs|exec|stop|down)"
    r"|kubectl\s+(?:-n\s+\S+\s+)?(?:get|describe|logs|exec|top)|(?:npm|pnpm|yarn|pip3?|cargo|brew|apt(?:-get)?|gem|go)\s+"
    r"(?:ls|list|show|view|search|info|outdated|why|freeze|env|version|help|get|audit)"
    r"|\S+\s+(?:--version|--help|version|status|login|(?<!test )-[vVh]\s*$))(?![\w.-])",
    re.IGNORECASE,
)
_INSTALL = re.compile(
    r"(?P<program>npm|pnpm|yarn|bun|pip3?|brew|apt(?:-get)?|apk|dnf|gem|cargo|uv\s+pip|conda|rustup)\s+(?:\w+\s+)?"
    r"(?:install|i|ci|add|remove|uninstall|update|upgrade)(?!\s+(?:-e|--editable|-r|--frozen-lockfile)\b)(?![\w.-])"
)
_PROGRAM = re.compile(
    r"(?:\S*/)?(?:pytest|tox|nox|vitest|jest|mocha|ava|karma|playwright|cypress|rspec|minitest|phpunit|pest|ctest"
    r"|gotestsum|cargo|g?make|just|task|mage|rake|invoke|ant|ninja|cmake|meson|bazel|bazelisk|buck2?|pants|sbt|lein"
    r"|stack|cabal|mix|rebar3|npx|bunx|pnpx|uvx|turbo|nx|lerna|rush|vite|webpack|rollup|esbuild|next|nuxt|astro|ng|tsc"
    r"|eslint|prettier|biome|oxlint|stylelint|hatch|ruff|mypy|pyright|flake8|pylint|black|isort|pre-commit|alembic"
    r"|flask|uvicorn|gunicorn|celery|streamlit|gradlew?|mvnw?|msbuild|kotlinc|rails|symfony|helm|skaffold|tilt"
    r"|kustomize|terraform|tofu|terragrunt|pulumi|cdk|ansible(?:-playbook)?|packer|serverless|sls|sam|wrangler|vercel"
    r"|netlify|fly(?:ctl)?|heroku|firebase|supabase|eb|xcodebuild|fastlane|flutter|zig|prisma|drizzle-kit|flyway"
    r"|liquibase|dbt|sqlx|diesel|goose|migrate|act|nix|mkdocs|sphinx-build|jekyll|hugo|storybook|golangci-lint"
    r"|staticcheck|shellcheck|clang-tidy|buf|protoc|pod)(?![\w-])"
    r"|(?:npm|pnpm|yarn|bun|deno)\s+[\w:.-]+|(?:uv|poetry|pdm|hatch|pipenv|rye|conda)\s+(?:run|sync|build|install)"
    r"|pip3?\s+install|python[\d.]*\s+(?:-\w+\s+)*-m\s+\w|python[\d.]*\s+\S*manage\.py|php\s+artisan"
    r"|(?:bundle|composer|go|dotnet|swift|dart|podman|docker|docker[ -]compose)\s+[a-z]"
    r"|kubectl\s+(?:-n\s+\S+\s+)?(?:apply|rollout|port-forward)|(?:bash\s+|sh\s+)?(?:\./|scripts?/|tools/|bin/|ci/|hack/|dev/)[\w./-]+"
)
# A word of the command, or of a name in it, that says what is done to the project: `:app:testDebug`, `build:widgets`.
_VERB = re.compile(
    r"(?:unit|py|vi|re)?tests?|specs?|e2e|smoke|builds?|compile|assemble|checks?|lint|fmt|format|typecheck|verify"
    r"|validate|bench(?:mark)?|coverage|serve|server|start|dev|watch|deploy|release|package|publish|migrat(?:e|ions?)"
    r"|seeds?|generate|codegen|simulate|train|eval|render|flash|provision|main|app|worker"
)
_NAME = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
# Looked up, or tried once: no recipe of the project.
_TRIAL = re.compile(
    r"<<|\becho\b.*\||^\S*(?:python[\d.]*|node|ruby|perl|php|bash|sh|psql|mysql|sqlite3)\s(?:.*\s)?-[ce]\s"
)
_RESULT = re.compile(
    r"\b[1-9]\d* (?:tests? |specs? |examples? |checks? )?(?:passed|passing|pass|ok|succeeded)\b|\b(?:PASS|Passed)\b"
    r"|\b0 (?:failed|failures|errors)\b|\bBUILD SUCC|\bbuild (?:succeeded|complete)|\bcompiled\b|\bLinking\b"
    r"|\b(?:listening|running|serving) (?:on|at)\b"
)
_FAILED = re.compile(
    r"^Traceback \(most recent|^\S*(?:Error|Exception)(?::|$)|^(?:error|fatal|panic|E)(?:\[\w+\])?:? "
    r"|command not found"
    r"|No such file or directory|Permission denied|npm ERR!|ERR_\w+|^FAILED|\bBUILD FAILED|Segmentation fault"
    r"|\b[1-9]\d* (?:failed|failures?|errors?)\b|\bexit(?:ed)?(?: with)?(?: code| status)?:? [1-9]"
    r"|No rule to make target",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z][\w-]{2,}")
_COMMON = frozenset(["run", "exec", "the", "and", "for", "with", "sudo", "env", "true", "test", "dev", "src"])


def is_everyday(command: str) -> bool:
    """True for a command that looks, moves, edits, fetches or installs: every step of it does."""
    return all(_EVERYDAY.match(step) or _INSTALL.match(step) for step in _split_steps(command))


def is_work(command: str, output: str = "") -> bool:
    """True for a command that builds, tests, checks or runs a project, and is worth knowing next time.

    A program is known, its arguments say so, or its output does.
    """
    text = command.strip()
    if not text or len(text) > MAX_COMMAND_CHARACTERS or "\n" in text or is_everyday(text) or _TRIAL.search(text):
        return False
    steps = [step for step in _split_steps(text) if not _EVERYDAY.match(step) and not _INSTALL.match(step)]
    known = any(_PROGRAM.match(step) or _has_verb(step) for step in steps)
    return known or _RESULT.search(output[-MAX_OUTPUT_CHARACTERS:]) is not None


def looks_failed(output: str) -> bool:
    """Judge by its output whether a command failed, for clients that give no exit code."""
    return _FAILED.search(output[-MAX_OUTPUT_CHARACTERS:]) is not None


def fixes(failed: str, output: str, worked: str, next_command: bool) -> bool:
    """True if a command that worked is the answer to one that failed.

    They share a word, the error names the second, or it came right after and both are work on the project.
    """
    if failed.strip() == worked.strip() or all(map(_EVERYDAY.match, _split_steps(worked))):
        return False
    before, after = (set(_WORD.findall(text)) - _COMMON for text in (failed, worked))
    named = {word for word in after if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", output)}
    if is_everyday(failed) or is_everyday(worked):
        return _repeats_install(failed, worked)
    return bool(before & after) or bool(named) or (next_command and is_work(worked))


def _repeats_install(failed: str, worked: str) -> bool:
    first, second = (_INSTALL.match(_PREFIX.sub("", text, count=1)) for text in (failed, worked))
    return first is not None and second is not None and first["program"] == second["program"]


def _has_verb(step: str) -> bool:
    return any(_VERB.fullmatch(name.lower()) for name in _NAME.findall(step))


def _split_steps(command: str) -> Iterator[str]:
    """Yield the steps of a command line without the words before the program."""
    return (_PREFIX.sub("", step, count=1) for step in _STEP_END.split(command) if step.strip())
