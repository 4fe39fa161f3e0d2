# Everything a newcomer types. Each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all lint bench clean

demo: $(VENV)/ready
	$(BIN)/principal demo

test: lint
	$(BIN)/pytest

test-all: lint
	$(BIN)/pytest -m ""

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready
	$(BIN)/python benchmarks/core.py

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "principal-attention needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist runs .pytest_cache .ruff_cache .mypy_cache
