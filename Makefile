# Everything a newcomer types. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-browser lint bench clean

demo: $(VENV)/ready
	$(BIN)/principal demo

# Two workers with one thread each: most tests are too small for threads to help.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

test-all: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not browser"

# Chromium comes from Debian's packages where they may be installed; elsewhere the one that is there is used.
test-browser: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || true
	$(BIN)/pytest -m browser

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/models.py

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "principal-attention needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	$(BIN)/python -m principal_attention.installs
	touch $@

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .ruff_cache .mypy_cache
