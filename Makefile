# Sets itself up in .venv on first use; needs Python 3.11+ with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One file pins everything, what builds the package included.
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q

.PHONY: demo test test-all lint format bench clean

demo: $(VENV)/.run ## fit synthetic ratings with planted truth and show what comes out
	$(BIN)/bayesmf demo --out demo

# Three at a time, since many wait. They start some hundred processes, which would each compile our
# modules from their source.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.test ## the test suite, without what tests/long.txt names
	$(PYTEST) -m 'not long'

test-all: $(VENV)/.test ## the whole of it
	$(PYTEST)

lint: $(VENV)/.test ## style, types, and docstrings of public names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/helpers/public_names.py

format: $(VENV)/.test ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.run ## speed of samplers, threads and answers on this machine, in a minute or three
	$(BIN)/bayesmf bench

clean: ## remove the environment and what the commands made
	rm -rf $(VENV) demo

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[plots]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.run
