# Trace a Tensor. `make help` lists the commands.
# Every set-up step writes a stamp file, so a second call starts at once.

PYTHON      ?= python3
VENV        ?= .venv
TORCH       ?= torch==2.13.0
# The CPU build of torch (200 MB). For CUDA: make course TORCH_INDEX=https://download.pytorch.org/whl/cu130
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# What the trace follows: make trace MODEL=mistral-7b DEVICE=h200
MODEL       ?= llama-3-8b
DEVICE      ?= h100-sxm
PYTEST_ARGS ?= -n 2

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
COURSE := $(VENV)/.course-ready
TESTS  := $(VENV)/.tests-ready
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help course trace test lint notebooks prove bench lock clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

course: $(COURSE)  ## set up everything and open the course in JupyterLab
	@echo "Opening the course in JupyterLab. Stop it with Ctrl-C."
	$(BIN)/jupyter lab START_HERE.ipynb

trace: $(COURSE)  ## the same without a browser: follow one tensor from its values to the monthly bill
	$(BIN)/trace-tensor bill --model $(MODEL) --device $(DEVICE)

test: $(TESTS) lint  ## set up everything and run every check
	$(BIN)/python -m grading.build --check
	$(BIN)/python -m grading.prove
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(TESTS)  ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

notebooks: $(TESTS)  ## build the learner notebooks from grading/staff/source
	$(BIN)/python -m grading.build

prove: $(TESTS)  ## prove every exercise against its named wrong answers
	$(BIN)/python -m grading.prove

bench: $(TESTS)  ## measure speed as ratios against a peer in the same run
	@for bench in benchmarks/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

lock: $(TESTS)  ## pin what the index serves today (torch is pinned apart, above)
	$(BIN)/pip-compile -q --upgrade --strip-extras --no-header --no-emit-options --no-emit-index-url \
	  --no-emit-find-links --no-emit-trusted-host --extra fast --extra notebooks --extra grading \
	  --extra test --extra dev --output-file requirements.lock pyproject.toml

clean:  ## remove the environment and caches (your answers and progress stay)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Trace a Tensor needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Install one, then name it: make course PYTHON=python3.12"; exit 1; }
	@echo "[1/4] making the environment $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade pip

# torch first and by its exact pin: no resolver ever meets an unpinned torch. Its build comes from the chosen index,
# what it needs from the ordinary one.
$(VENV)/.torch-ready: $(BIN)/python
	@echo "[2/4] installing $(TORCH) from $(TORCH_INDEX)"
	$(PIP) install --no-deps --retries 1 $(TORCH) --extra-index-url $(TORCH_INDEX)
	$(PIP) install -q -c requirements.lock $(TORCH)
	@touch $@

$(COURSE): $(VENV)/.torch-ready pyproject.toml requirements.lock
	@echo "[3/4] installing the course"
	$(PIP) install -c requirements.lock -e '.[fast,notebooks]'
	@$(BIN)/trace-tensor doctor
	@echo "[4/4] ready"
	@touch $@

$(TESTS): $(VENV)/.torch-ready pyproject.toml requirements.lock
	@echo "[3/4] installing the course with its tests"
	$(PIP) install -c requirements.lock -e '.[fast,notebooks,grading,test,dev]'
	@$(BIN)/python -m tests.browser_ready || $(BIN)/playwright install chromium
	@echo "[4/4] ready to test"
	@touch $@ $(COURSE)
