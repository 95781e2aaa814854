# make demo   see it work          make test    every check and test
# make bench  measure it           make help    the rest

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
WEIGHTS := packages/engrain-minilm
SUITES := packages/engrain-conformance

# Frameworks that have an extra of this name.
INTEGRATIONS ?= agent-framework anthropic google-adk langchain langgraph llama-index openai-agents pydantic-ai
# Frameworks that start our MCP server, whose packages their own exclude.
MCP_FRAMEWORKS ?= autogen crewai smolagents
# LOWEST=1: the lowest versions that the extras allow, instead of the newest.
ENVIRONMENTS := .venv-integrations$(if $(LOWEST),-lowest)
FIGURES := tests/integrations/figures

# Test workers, and the programs that tests start, reuse compiled files.
unexport PYTHONDONTWRITEBYTECODE

# Packages come pinned and with hashes from requirements/. UNLOCKED=1: the newest that pyproject.toml allows.
LOCKED = install --require-hashes -r requirements
OWN    = install --no-deps --no-build-isolation

CLIENTS := @anthropic-ai/claude-code @openai/codex @google/gemini-cli @github/copilot opencode-ai

.PHONY: demo test tests test-all test-integrations test-clients test-ui check types lint format bench install audit dist site lock help clean

demo: $(VENV)/.core  ## see an agent's memory work, about half a minute
	@$(BIN)/engrain demo

test: lint  ## format, types, import contracts and tests, about five minutes on two cores
	@$(MAKE) --no-print-directory -j 2 types tests

# Four workers on two cores: they often wait for a program, a server or a time-out.
# A test that hangs prints the stacks of its threads and fails; its worker ends and another takes its place.
tests: $(VENV)/.dev
	$(BIN)/python -m pytest -rs -n 4 --dist worksteal -m "not slow" \
	  -o faulthandler_timeout=240 -o faulthandler_exit_on_timeout=true

test-all: check audit  ## the long suites as well: crash matrices, every backend and pooler, load
	$(BIN)/python -m pytest

test-integrations: $(INTEGRATIONS:%=test-of-%) $(MCP_FRAMEWORKS:%=test-by-mcp-of-%)  ## each framework, in an environment of its own
	@$(MAKE) --no-print-directory test-clients

test-of-%: $(ENVIRONMENTS)/%/.ready
	$(if $(LOWEST),,INTEGRATION_FIGURES=$(FIGURES)/$*.json) $(ENVIRONMENTS)/$*/bin/python -m pytest -rs \
	  tests/integrations/test_$(subst -,_,$*)_*.py tests/integrations/test_pages_of_frameworks.py \
	  tests/integrations/test_erasure_in_frameworks.py tests/integrations/test_damaged_records.py
	@$(PYTHON) tools/integrations_page.py

test-by-mcp-of-%: $(ENVIRONMENTS)/%/.ready $(VENV)/.dev
	INTEGRATION_FIGURES=$(FIGURES)/$*.json $(BIN)/python -m pytest -rs tests/integrations/test_mcp_frameworks.py -k $*
	@$(PYTHON) tools/integrations_page.py

# Claude Code and opencode fetch their programs in scripts that npm does not run by itself.
test-clients: $(VENV)/.dev  ## five real coding agents from npm, without a login, against a local model server
	@npm install --prefix .clients --no-audit --no-fund --silent $(CLIENTS)
	@cd .clients/node_modules/@anthropic-ai/claude-code && node install.cjs
	@cd .clients/node_modules/opencode-ai && node postinstall.mjs
	CODING_CLIENTS=$(CURDIR)/.clients/node_modules/.bin $(BIN)/python -m pytest -rs tests/connect_clients

test-ui: $(VENV)/.dev  ## the page of `engrain ui`, in Chromium, which is installed if it is missing
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	$(BIN)/python -m pytest tests/ui

# Types take half a minute without a cache; other checks and the tests run beside them.
check: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 types lint

types: $(VENV)/.dev
	$(BIN)/mypy

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.core $(if $(PEERS),.venv-peers/.ready)  ## DATA="folder folder": recall on them, then speed; PEERS=1: others too
ifneq ($(strip $(DATA)),)
	$(BIN)/python bench/run.py recall $(DATA) $(if $(PEERS),--peers)
endif
	$(BIN)/python bench/run.py speed $(if $(PEERS),--peers)

install: $(VENV)/.core  ## the package in .venv, and nothing for development

audit: $(VENV)/.dev  ## known vulnerabilities of the pinned packages
	$(BIN)/python tools/audit.py

dist: $(VENV)/.dev .venv-site/.ready  ## wheels, sdists and a bill of materials (CycloneDX), in dist/, checked
	rm -rf dist
	@for package in . $(WEIGHTS) $(SUITES); do (cd $$package && $(abspath $(BIN))/python -m hatchling build -d $(CURDIR)/dist); done
	$(BIN)/python tools/sbom.py dist/engrain.cdx.json
	.venv-site/bin/twine check --strict dist/*.whl dist/*.tar.gz

site: .venv-site/.ready  ## the documentation as a site, in site/; the workflows of GitHub are checked too
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet
	.venv-site/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv-site/bin/zizmor --offline --quiet .github/workflows

lock: $(BIN)/python  ## pin the packages anew; UPGRADE=1: in their newest versions
	@$(PIP) install uv
	$(BIN)/python tools/lock.py $(if $(UPGRADE),--upgrade)

help:
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

clean:
	rm -rf $(VENV) .venv-peers .venv-integrations* .venv-site site dist

$(BIN)/python:
	@echo "Making $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "engrain needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
ifdef UNLOCKED
	@$(PIP) install --upgrade "pip>=25.1"
endif

$(VENV)/.core: pyproject.toml requirements/core.txt requirements/build.txt $(WEIGHTS)/pyproject.toml | $(BIN)/python
	@echo "Installing engrain into $(VENV) …"
ifdef UNLOCKED
	@$(PIP) install ./$(WEIGHTS) -e ".[fast]"
else
	@$(PIP) $(LOCKED)/core.txt
	@$(PIP) $(LOCKED)/build.txt
	@$(PIP) $(OWN) ./$(WEIGHTS) -e .
endif
	@touch $@

.venv-peers/.ready: bench/peers/requirements.txt
	@echo "Installing the systems to compare with into .venv-peers …"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check -q install -r bench/peers/requirements.txt
	@touch $@

.venv-site/.ready: pyproject.toml
	@echo "Installing the tools for the site and the packages into .venv-site …"
	@$(PYTHON) -m venv .venv-site
	@.venv-site/bin/python -m pip --disable-pip-version-check -q install --upgrade "pip>=25.1"
	@.venv-site/bin/python -m pip --disable-pip-version-check -q install --group site
	@touch $@

.PRECIOUS: $(ENVIRONMENTS)/%/.ready
$(ENVIRONMENTS)/%/.ready: pyproject.toml $(WEIGHTS)/pyproject.toml $(SUITES)/pyproject.toml
	@echo "Installing $* into $(ENVIRONMENTS)/$* …"
	@$(PYTHON) tools/install_framework.py $* $(ENVIRONMENTS)/$* $(if $(LOWEST),--lowest)
	@touch $@

$(VENV)/.dev: $(VENV)/.core requirements/dev.txt requirements/encryption.txt $(SUITES)/pyproject.toml
	@echo "Installing the tools for tests and checks …"
ifdef UNLOCKED
	@$(PIP) install --group dev -e ./$(SUITES)
	@$(PIP) install --no-deps --upgrade --target $(VENV)/encryption --group encryption
else
	@$(PIP) $(LOCKED)/dev.txt
	@$(PIP) $(OWN) -e ./$(SUITES)
	@$(PIP) $(LOCKED)/encryption.txt --no-deps --upgrade --target $(VENV)/encryption
endif
	@touch $@
