# Sets itself up in .venv on first use; needs Python 3.11+ with venv, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One file pins everything, what builds the package included.
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q

.PHONY: demo page test test-all test-wheel test-tools docs lint format bench paper build clean

demo: $(VENV)/.run ## fit synthetic ratings with planted truth and show what comes out
	$(BIN)/bayesmf demo --out demo

page: $(VENV)/.run ## the same in the browser: rate invented films, and watch intervals shrink
	$(BIN)/bayesmf demo --serve --out demo

# Three at a time, since many wait. They start some hundred processes, which would each compile our
# modules from their source.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.test ## the test suite, without what tests/long.txt names
	$(PYTEST) -m 'not long'

test-all: $(VENV)/.test ## the whole of it
	$(PYTEST)

# What users install: every file is there, and it works where there is no source tree.
test-wheel: build ## install the wheel into an environment of its own and run quick tests there
	$(BIN)/python tests/helpers/wheel.py dist/*.whl

# What no other test here can see, as it takes packages that nothing else needs. Tests of LensKit run
# wherever it is installed: it brings gigabytes.
TOOLS := .venv-tools
test-tools: ## adapters for Cornac and Ray Serve, in an environment of their own
	test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install -q -e '.[ray-serve]' cornac pytest pandas scikit-learn
	$(TOOLS)/bin/python -m pytest -rs tests/integrations/test_cornac.py tests/web/test_ray_serve.py

docs: $(VENV)/.docs ## build docs/_build/html, a warning being an error; then run all pages and notebooks
	$(BIN)/python -m sphinx -b html -j auto -W --keep-going -n -q docs docs/_build/html
	$(BIN)/python docs/_ext/offline.py docs/_build/html
	$(PYTEST) --dist load -rs $(addprefix tests/project/,test_pages.py test_answers_page.py test_examples.py)

lint: $(VENV)/.test ## style, types, and docstrings of public names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/helpers/public_names.py

format: $(VENV)/.test ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.run ## speed of samplers, threads and answers on this machine, in a minute or three
	$(BIN)/python -m benchmarks bench

# Small and short: docs/experiments.md has the command of the full size.
paper: $(VENV)/.run ## the experiments of the paper on few synthetic ratings, in a few minutes
	$(BIN)/python -m experiments.paper all --scale 0.003 --budget 1 --dimensions 10 20 --out report

build: $(VENV)/.dist ## make sdist and wheel in dist/, and check what an index would show
	rm -rf dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean: ## remove the environment and what the commands made
	rm -rf $(VENV) $(TOOLS) demo report dist docs/_build docs/reference/generated

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[plots,web]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[test]'
	touch $@ $(VENV)/.run

$(VENV)/.docs: $(VENV)/.test
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.dist: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[dist]'
	touch $@
