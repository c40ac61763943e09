# Every target sets up what it needs in .venv, can be run again and again, and says what it does.
# BENCH holds options of the benches: make bench BENCH="--quick --only postgres-drain --json figures.json"
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: help venv demo test lint bench bench-rivals soak clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make the virtual environment

$(STAMP): pyproject.toml
	@echo "==> making $(VENV) and installing holdfast with its development tools"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "holdfast needs Python 3.11 or newer; say: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(STAMP)

demo: $(STAMP)  ## run the whole thing once on a fresh SQLite file (under 20 s)
	@echo "==> holdfast demo"
	@$(BIN)/holdfast demo

lint: $(STAMP)  ## format check, lint, types
	@echo "==> ruff format --check, ruff check, mypy --strict"
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --diff --quiet . | head -40; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

test: lint  ## lint, types, then every test but the long ones
	@echo "==> pytest"
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak"

soak: $(STAMP)  ## the long tests: 200 kills and more
	@echo "==> pytest, the long tests"
	@$(BIN)/python -m pytest -m soak --timeout 1800 -s

bench: $(STAMP)  ## print the figures, each beside its floor from the same run
	@echo "==> bench: figures against the floor of the same run"
	@$(BIN)/python -m bench.run $(BENCH)

bench-rivals: $(STAMP)  ## ours and the rivals side by side, each in an environment of its own
	@echo "==> bench-rivals: one after another on the same servers"
	@$(BIN)/python -m bench.rivals.run $(BENCH)

clean:  ## remove what the targets made
	rm -rf $(VENV) bench/.venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis
