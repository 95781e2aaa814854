# make demo   see it work          make test    every check and test
# make bench  measure it           make help    the rest

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
WEIGHTS := packages/engrain-minilm
SUITES := packages/engrain-conformance

# Test workers, and the programs that tests start, reuse compiled files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-ui check types lint format bench install help clean

demo: $(VENV)/.core  ## see an agent's memory work, about half a minute
	@$(BIN)/engrain demo

test: check  ## format, types, import contracts and tests, about five minutes on two cores
	$(BIN)/python -m pytest -rs -n 3 --dist worksteal -m "not slow"

test-all: check  ## the long suites as well: crash matrices, every backend and pooler, load
	$(BIN)/python -m pytest

test-ui: $(VENV)/.dev  ## the page of `engrain ui`, in Chromium, which is installed if it is missing
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }
	$(BIN)/python -m pytest tests/ui

# Types take half a minute without a cache; the rest runs beside them.
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

help:
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

clean:
	rm -rf $(VENV) .venv-peers

$(BIN)/python:
	@echo "Making $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "engrain needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.1"

$(VENV)/.core: pyproject.toml $(WEIGHTS)/pyproject.toml | $(BIN)/python
	@echo "Installing engrain into $(VENV) …"
	@$(PIP) install ./$(WEIGHTS) -e ".[fast]"
	@touch $@

.venv-peers/.ready: bench/peers/requirements.txt
	@echo "Installing the systems to compare with into .venv-peers …"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/python -m pip --disable-pip-version-check -q install -r bench/peers/requirements.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.core $(SUITES)/pyproject.toml
	@echo "Installing the tools for tests and checks …"
	@$(PIP) install --group dev -e ./$(SUITES)
	@$(PIP) install --no-deps --upgrade --target $(VENV)/encryption --group encryption
	@touch $@
