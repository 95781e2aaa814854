"""Tell commands that build, test or run a project from everyday ones, and a failed one from one that worked."""

from __future__ import annotations

import re

_ENVIRONMENT = r"(?:[A-Za-z_][A-Za-z0-9_]*=\S*\s+|(?:sudo|time|env|nice|exec|command)\s+)*"
_EVERYDAY = re.compile(
    rf"\s*{_ENVIRONMENT}(?:ls|ll|dir|cd|pwd|cat|bat|less|more|head|tail|echo|printf|which|type|whoami|date|env|export"
    r"|set|history|clear|man|help|tree|du|df|wc|sort|uniq|diff|file|stat|touch|mkdir|rmdir|rm|cp|mv|ln|chmod|chown"
    r"|grep|egrep|rg|ag|ack|find|fd|sed|awk|cut|tr|xargs|jq|yq|ps|top|htop|kill|pkill|lsof|ss|netstat|ping|curl|wget"
    r"|dig|ssh|scp|rsync|tar|zip|unzip|gzip|open|code|vim?|nano|git|gh|hub|sleep|true|false|test|\[|tee|source"
    r"|\.(?=\s)"
    r"|docker\s+(?:ps|images|logs|exec|inspect|stop|rm|rmi|pull|stats)|docker[ -]compose\s+(?:ps|logs|exec|stop|down)"
    r"|kubectl\s+(?:get|describe|logs|exec|top)|(?:npm|pnpm|yarn|pip3?|cargo|brew|apt(?:-get)?|gem|go)\s+"
    r"(?:ls|list|show|view|search|info|outdated|why|freeze|env|version|help|get|audit)"
    r"|(?:npm|pnpm|yarn|bun|pip3?|brew|apt(?:-get)?|gem|cargo|uv\s+pip)\s+(?:install|i|add|remove|uninstall|update"
    r"|upgrade)(?!\s+(?:-e|--editable|-r|--frozen-lockfile)\b)"
    r"|\S+\s+(?:--version|-v|-V|--help|-h|version))(?![\w.-])",
    re.IGNORECASE,
)
_WORK = re.compile(
    r"(?<![\w./-])(?:"
    r"pytest|tox|nox|unittest|vitest|jest|mocha|ava|karma|playwright|cypress|rspec|minitest|phpunit|pest|ctest"
    r"|gotestsum"
    r"|go\s+(?:test|build|run|vet|generate)|cargo\s+(?:\+\S+\s+)?(?:test|build|run|clippy|fmt|bench|nextest|check|doc)"
    r"|g?make|just|task|mage|rake|invoke|ant|ninja|cmake|meson|bazelisk?|buck2?|pants|sbt|lein|stack|cabal|mix|rebar3"
    r"|(?:npm|pnpm|yarn|bun|deno)\s+(?:run\s+|task\s+)?[\w:-]+|npx|bunx|pnpx|turbo|nx|lerna|rush|vite|webpack|rollup"
    r"|esbuild|next|nuxt|astro|ng|tsc|eslint|prettier|biome|oxlint|stylelint"
    r"|uv\s+(?:run|sync|build)|uvx|poetry\s+(?:run|install|build)|pdm\s+run|hatch|pipenv\s+run|rye\s+(?:run|sync)"
    r"|pip3?\s+install\s+(?:-e|--editable|-r)|python[\d.]*\s+(?:-\w+\s+)*-m\s+\w|python[\d.]*\s+\S*manage\.py"
    r"|ruff|mypy|pyright|flake8|pylint|black|isort|pre-commit|alembic|flask|uvicorn|gunicorn|celery|streamlit"
    r"|(?:\S*/)?gradlew?|(?:\S*/)?mvnw?|dotnet\s+(?:build|test|run|publish|ef|format)|msbuild|kotlinc"
    r"|bundle\s+(?:exec|install)|bin/\w+|rails|composer\s+(?:install|run|test)|php\s+artisan|symfony"
    r"|docker[ -]compose\s[^|;&]*\b(?:up|build|run)|docker\s+(?:buildx\s+)?(?:build|run)|podman\s+(?:build|run)"
    r"|kubectl\s+(?:apply|rollout)|helm|skaffold|tilt|kustomize|terraform|tofu|terragrunt|pulumi|cdk"
    r"|ansible(?:-playbook)?"
    r"|packer|vagrant\s+up|serverless|sls|sam|wrangler|vercel|netlify|fly(?:ctl)?|heroku|firebase|supabase|gcloud|eb"
    r"|swift\s+(?:build|test|run)|xcodebuild|fastlane|pod\s+install|flutter|dart\s+(?:test|run|analyze)|zig\s+\w+"
    r"|prisma|drizzle-kit|flyway|liquibase|dbt|sqlx|diesel|goose|migrate|act|nix\s+(?:build|develop|run|flake)|mkdocs"
    r"|sphinx-build|jekyll|hugo|storybook|golangci-lint|staticcheck|shellcheck|clang-tidy|buf|protoc"
    r"|(?:node|tsx|ts-node|python[\d.]*|ruby|php|bun|deno run)\s+(?:[\w./-]+/)?(?:server|app|main|index|manage|run"
    r"|start|dev|worker)\.\w+"
    r")(?![\w-])"
    r"|(?:^|&&|;)\s*(?:bash\s+|sh\s+)?(?:\./|scripts?/|tools/|bin/|ci/|hack/|dev/)[\w./-]+",
)
# Looked up, or tried once: no recipe of the project.
_TRIAL = re.compile(r"(?:^|\s)(?:-c|-e|--eval|--print)\s|<<|\becho\b.*\|")
_FAILED = re.compile(
    r"^Traceback \(most recent|^\S*(?:Error|Exception)(?::|$)|^(?:error|fatal|panic|E)(?:\[\w+\])?:? "
    r"|command not found"
    r"|No such file or directory|Permission denied|npm ERR!|ERR_\w+|^FAILED|\bBUILD FAILED|Segmentation fault"
    r"|[1-9]\d* (?:failed|failures?|errors?)\b|\bexit(?:ed)?(?: with)?(?: code| status)?:? [1-9]"
    r"|No rule to make target",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z][\w-]{2,}")
_COMMON = frozenset(["run", "exec", "the", "and", "for", "with", "sudo", "env", "true", "test", "dev", "src"])
MAX_COMMAND_CHARACTERS = 400


def is_everyday(command: str) -> bool:
    """True for a command that looks, moves or fetches: every step of it does."""
    steps = [step for step in re.split(r"&&|\|\||;|\n|\|", command) if step.strip()]
    return all(_EVERYDAY.match(step) for step in steps)


def is_work(command: str) -> bool:
    """True for a command that builds, tests, checks or runs a project, and is worth knowing next time."""
    text = command.strip()
    if not text or len(text) > MAX_COMMAND_CHARACTERS or "\n" in text or is_everyday(text) or _TRIAL.search(text):
        return False
    return _WORK.search(text) is not None


def looks_failed(output: str) -> bool:
    """Judge by its output whether a command failed, for clients that give no exit code."""
    return _FAILED.search(output[-4_000:]) is not None


def fixes(failed: str, output: str, worked: str, next_command: bool) -> bool:
    """True if a command that worked is the answer to one that failed.

    They share a word, the error names the second, or it came right after and both are work on the project.
    """
    if failed.strip() == worked.strip() or is_everyday(worked) or is_everyday(failed):
        return False
    before, after = (set(_WORD.findall(text)) - _COMMON for text in (failed, worked))
    named = {word for word in after if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", output)}
    return bool(before & after) or bool(named) or (next_command and is_work(worked))
