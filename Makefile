# Every target sets itself up: `make bench` and `make test` are all a fresh clone needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stepduel-setup

SCENARIO ?= fsdp2_lora_no_offload
RANKS ?=
REPORTS ?= reports
PORT ?= 8001
JOBS ?= 2
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## List every target with one line
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is written last, so an interrupted install is begun again instead of being taken for done.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"stepduel needs Python 3.11 or newer, $(PYTHON) is {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	@echo "Setting up $(VENV) (once; torch is large)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

.PHONY: setup
setup: $(STAMP) ## Make .venv with pinned dependencies (done once)

.PHONY: bench
bench: $(STAMP) ## Run the main job: make bench [SCENARIO=…, default fsdp2_lora_no_offload] [RANKS=2] [ARGS='--set …']
	@$(BIN)/stepduel bench $(SCENARIO) $(if $(RANKS),--ranks $(RANKS)) $(ARGS)

.PHONY: gate
gate: $(STAMP) ## Fail on a regression: make gate BASE=origin/main [ARGS='--head-set …']
	@$(BIN)/stepduel gate $(if $(BASE),--base '$(BASE)') $(ARGS)

.PHONY: gate-self
gate-self: $(STAMP) ## Gate this project's own engine against the commit it builds on, briefly
	@.ci/gate-self $(ARGS)

.PHONY: serve
serve: $(STAMP) ## Browse the results in Datasette, with queries made for them: make serve [REPORTS=reports] [PORT=8001]
	@$(BIN)/python -c 'import datasette' 2>/dev/null || $(BIN)/python -m pip install --quiet --constraint constraints.txt datasette
	@$(BIN)/datasette serve '$(REPORTS)/results.db' --metadata docs/datasette.json --port $(PORT) $(ARGS)

.PHONY: scenarios
scenarios: $(STAMP) ## List the scenarios with one line each
	@$(BIN)/stepduel scenarios

.PHONY: test
test: $(STAMP) ## Run all tests, slow ones included [JOBS=2] (ARGS='-k …' narrows)
	@$(BIN)/python -m pytest -m 'not verl' -n $(JOBS) --dist loadfile $(ARGS)

# The environment is the scenario's own, made by the first launch; verl and what it needs come from the package index.
.PHONY: test-verl
test-verl: $(STAMP) ## Run releases of verl (the first time makes an environment of 1.4 GB)
	@$(BIN)/python -m pytest -m verl $(ARGS)

.PHONY: test-fast
test-fast: $(STAMP) ## Run the tests that need no launch
	@$(BIN)/python -m pytest $(ARGS)

.PHONY: mutate
mutate: $(STAMP) ## Do the tests notice single changes, drawn by seed? make mutate [ARGS='--seed 1 --number 40']
	@$(BIN)/python benchmarks/mutate.py $(ARGS)

.PHONY: lint
lint: $(STAMP) ## Check style and types: ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: format
format: $(STAMP) ## Rewrite the code in the project's style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMP) ## Write what the documentation takes from the code: the graph of packages, the commands
	@$(BIN)/python docs/generate.py

.PHONY: clean
clean: ## Remove the virtual environment and caches (results stay)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
