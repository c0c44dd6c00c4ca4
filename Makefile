# Everything a newcomer types. Override where things live with VENV=... and RUN=...
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
VARIANT ?=
SEED ?= 0

.PHONY: quickstart test test-all test-extras test-textworld lint check format clean

$(BIN)/.package: setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(BIN)/.dev: $(BIN)/.package
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# Wordle from scratch: demonstrations, fine-tuning, GRPO, evaluation; VARIANT=smoke for a minute's worth.
quickstart: $(BIN)/.package
	$(BIN)/agentrl-train --config=configs/wordle_grpo.py$(if $(VARIANT),:$(VARIANT)) --config.seed=$(SEED) $(ARGS)

test: $(BIN)/.dev
	$(BIN)/python -m pytest -q -n 2 -m "not slow" --durations=5

test-all: $(BIN)/.dev
	$(BIN)/python -m pytest -q -n 2 -rs --durations=15

# Against torch's transformers and peft, OpenSpiel and chess that needs it, compiled for TPUs that are not there, on a Ray cluster of this machine.
test-extras: $(BIN)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[parity,aot,ray,selfplay,chess]'
	$(BIN)/python -m pyright --pythonpath $(BIN)/python tests/parity
	REQUIRE_LIBTPU=1 $(BIN)/python -m pytest -q -n 2 -rs tests/parity tests/test_topology.py tests/test_plan.py
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -rs -k "chess or uci or actor" tests/envs tests/test_actors.py tests/test_workers.py tests/test_faults.py

# Text-Nav beside the textworld package, whose installation takes minutes and a C compiler.
test-textworld: $(BIN)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[textworld]'
	$(BIN)/python -m pytest -q -rs tests/parity/test_textworld.py

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pyright --pythonpath $(BIN)/python
	$(BIN)/codespell

check: lint
	$(MAKE) test

format: $(BIN)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
