# One entry point for everything a person does with the tree; `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEEDS ?= 0-99
JOBS ?= 2

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; assert sys.version_info >= (3, 11), "StreamHouse needs Python 3.11 or later"'
	@echo "Installing StreamHouse and its libraries into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'
	@touch $@

.PHONY: install
install: $(STAMP) ## Make .venv with the server, the command line and all test tools

.PHONY: run
run: install ## Start the server with embedded defaults (REST :8080, gRPC :50051, Kafka :9092)
	@exec $(BIN)/streamhouse server

.PHONY: test
test: install check ## Install, check style and types, run the default tests
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m 'not slow'

.PHONY: check
check: install ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: format
format: install ## Let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: sim
sim: install ## Simulation seeds, e.g. make sim SEEDS=0-499 or SEEDS=17
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --jobs $(JOBS)

.PHONY: slow
slow: install ## Tests that are too long for the default run
	$(BIN)/pytest -m slow

.PHONY: bench
bench: install ## StreamHouse against Apache Kafka: ratios, plot, docs/performance.md
	$(BIN)/python -m bench

.PHONY: bench-limits
bench-limits: install ## Idle partitions, restart with a full WAL, start with many segments
	$(BIN)/python -m bench.limits

.PHONY: docs
docs: install ## Rewrite the generated tables in README and docs
	$(BIN)/python -m tests.house.generated --write

.PHONY: clean
clean: ## Remove the virtual environment and caches (never data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
