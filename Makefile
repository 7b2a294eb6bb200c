# Every target makes .venv by itself, from nothing: Python >= 3.10 with venv and pip is all it needs.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
READY := $(VENV)/.ready
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard packages/*/pyproject.toml))
TOOLS := expecttest hypothesis mypy numpy pytest pytest-xdist ruff transformers
PYTEST := OMP_NUM_THREADS=1 $(RUN) pytest -n 2

.PHONY: help demo test test-fast test-all test-te-real test-nvfuser-real fuzz check format bench clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## train a small GPT on English text with thunder, and look inside (under 5 minutes)
	$(RUN) examples.train_char_gpt

test: $(READY) ## all tests but the exhaustive sweeps (under 20 minutes)
	$(PYTEST) -m "not exhaustive"

test-fast: $(READY) ## the tests that are not marked slow either (under 2 minutes)
	$(PYTEST) -m "not exhaustive and not slow"

test-all: $(READY) ## every test, with every operator of PyTorch's own operator database
	$(PYTEST)

test-te-real: ## thunder-te against the real TransformerEngine, which is compiled for it (half an hour, once)
	bash tests/te/real.sh

test-nvfuser-real: ## thunder-nvfuser against the real nvFuser, without a GPU (an environment of 7 GB, once)
	bash tests/nvfuser/real.sh

fuzz: $(READY) ## compare random programs with eager (SECONDS=60)
	OMP_NUM_THREADS=1 $(RUN) tests.fuzz --seconds $(or $(SECONDS),60)

check: $(READY) ## format, lint and types
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy

format: $(READY) ## rewrite the sources as `check` wants them
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

bench: $(READY) ## measure: tables in benchmarks/results (ARGS="--quick --case first_call")
	$(RUN) benchmarks $(ARGS)

clean: ## remove everything that the other targets made
	rm -rf $(VENV) demo_out benchmarks/results .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): constraints.txt Makefile $(PACKAGES:=/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.10 is needed: make PYTHON=/path/to/python3" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --constraint constraints.txt $(addprefix --editable ,$(PACKAGES)) $(TOOLS)
	@touch $@
