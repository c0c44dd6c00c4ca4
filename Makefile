# Everything a newcomer types. VENV=... says where the environment lives, PYTHON=... what makes it.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
VARIANT ?=
SEED ?= 0
# Python 3.11 installs the exact versions of this file, later ones the newest that setup.py allows; LOCK= does without.
LOCK ?= requirements-lock.txt
PIP := -m pip install --quiet --disable-pip-version-check
LOCKED = $(if $(LOCK),$$($(BIN)/python -c 'import sys; print("-c $(LOCK)" * (sys.version_info[:2] == (3, 11)))'))
# Two processes, each with whole files: fixtures of a file are built once, and tests/conftest.py orders the files.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder
# What test-newest runs, and the first Python of 3.12 or later that it finds; NEWEST_TESTS= runs all fast tests.
NEWEST_TESTS ?= $(addprefix tests/,learner inference/test_sampling.py test_layout.py)
NEWEST ?= $(shell for python in python3.12 "$$(pyenv root 2>/dev/null)"/versions/3.12*/bin/python python3.13 python3; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo "$$python" && break; done)

# What imports the SDK of MCP, which `make lint` has not.
MCP_MODULES := $(addprefix agentrl_jax/tool_servers/,mcp_connection.py mcp_serving.py stdio_transport.py) envs/programs/calculator_server.py tests/support/mcp_shop.py

.PHONY: viewer test-trackers test-mutants quickstart test test-all test-limits test-newest newest-env test-extras extras-env test-textworld test-worlds lint check format docs lock clean

$(BIN)/.package: setup.py pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) $(LOCKED) -e '.[report]'
	@touch $@

$(BIN)/.dev: $(BIN)/.package
	$(BIN)/python $(PIP) $(LOCKED) -e '.[dev]'
	@touch $@

# Wordle from scratch: demonstrations, fine-tuning, GRPO, evaluation; VARIANT=smoke for a minute's worth.
quickstart: $(BIN)/.package
	$(BIN)/agentrl-train --config=configs/wordle_grpo.py$(if $(VARIANT),:$(VARIANT)) --config.seed=$(SEED) $(ARGS)

test: $(BIN)/.dev
	$(PYTEST) -m "not slow" --durations=5 $(TESTS)

test-all: $(BIN)/.dev
	$(PYTEST) -rs --durations=15

# Every method with each limit, and every config with 20 tokens an episode: about 20 minutes.
test-limits: $(BIN)/.dev
	ALL_LIMITS=1 $(BIN)/python -m pytest -q -n 2 tests/configs tests/algorithms/methods/test_methods_under_limits.py tests/tool_servers/test_verl_python.py

# The tests that depend most on JAX and on Python, with the newest versions that setup.py allows.
test-newest:
	@if [ -z "$(NEWEST)" ]; then echo "test-newest is skipped: no Python 3.12 or later is installed"; \
	else $(MAKE) VENV=$(VENV)-newest PYTHON="$(NEWEST)" TESTS="$(NEWEST_TESTS)" test; fi

# Its environment alone, which .ci/run makes while other tests run.
newest-env:
	@if [ -n "$(NEWEST)" ]; then $(MAKE) VENV=$(VENV)-newest PYTHON="$(NEWEST)" $(VENV)-newest/bin/.dev; fi

# Against torch's transformers and peft, OpenSpiel and chess that needs it, compiled for TPUs that are not there, on a Ray cluster of this machine, with servers of MCP.
test-extras: extras-env
	$(BIN)/python -m pyright --pythonpath $(BIN)/python tests/parity $(MCP_MODULES)
	REQUIRE_LIBTPU=1 $(PYTEST) -rs tests/parity tests/compiler/test_topology.py tests/launch/test_plan_tpu.py
	$(PYTEST) -rs tests/tool_servers/test_mcp_client.py tests/tool_servers/test_mcp_server.py tests/tool_servers/test_openenv_server.py
	$(PYTEST) -rs -k "chess or uci or actor or RemotePriceList or ReasoningGym or reasoning_gym or without_its_extra or OpenSpiel or open_spiel or PettingZoo or pettingzoo or TextArena or textarena or OpenEnv or openenv or BabyAI or babyai or adapter or duckdb or tantivy" tests/envs tests/workers/test_ray_pool.py tests/workers/test_pool.py tests/workers/test_faulty_envs.py

# Its packages alone, which .ci/run installs while test-newest runs in another environment.
extras-env: $(BIN)/.dev
	$(BIN)/python $(PIP) -e '.[parity,encoder,aot,ray,selfplay,chess,mcp,reasoning-gym,open-spiel,pettingzoo,textarena,openenv,minigrid,duckdb,tantivy]'

# Text-Nav against the textworld package, and games that it generates; its installation takes minutes and a C compiler.
test-textworld: $(BIN)/.dev
	$(BIN)/python $(PIP) -e '.[textworld,jericho]'
	$(PYTEST) -rs -k "textworld or TextWorld or treasure or jericho" tests/parity/test_textworld.py tests/envs

# ScienceWorld and ALFWorld against their packages, 100 episodes each: needs Java and a C++ compiler, takes half an hour.
test-worlds: $(BIN)/.dev
	$(BIN)/python $(PIP) -e '.[scienceworld,alfworld]'
	$(PYTEST) -rs tests/envs/test_scienceworld.py tests/envs/test_alfworld.py
	$(PYTEST) -rs -k "ScienceWorld or ALFWorld" tests/envs/test_battery.py

# MiniWoB++'s tasks through BrowserGym: needs the program chromium.
test-browsergym: $(BIN)/.dev
	$(BIN)/python $(PIP) -e '.[browsergym]'
	$(PYTEST) -rs -n0 tests/envs/test_browsergym.py

# Small changes of losses, credit, packing and sharding that tests must notice, a random 150 of them: 20 minutes of CPU.
test-mutants: $(BIN)/.dev
	$(BIN)/python $(PIP) -e '.[mutation]'
	$(BIN)/python -m benchmarks.studies.mutation --size=150 $(ARGS)

# In an environment of its own: MLflow and Trackio need older pyarrow and Pillow than the tests.
test-trackers:
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/python $(PIP) -e '.[report,wandb,mlflow,trackio]' pytest pytest-xdist beartype hypothesis
	JAX_PLATFORMS=cpu .venv-trackers/bin/python -m pytest -rs tests/reporting/test_trackers.py

# The page of agentrl-view from viewer/: needs Node.js 20.19 or later. Fails where the committed page is another.
viewer:
	cd viewer && npm ci --silent && npm run --silent check && npm run --silent test && npm run --silent build
	git diff --exit-code --stat agentrl_jax/viewer/page.html

lint: $(BIN)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pyright --pythonpath $(BIN)/python
	$(BIN)/codespell
	$(BIN)/python tests/support/check_identifiers.py

check: lint
	$(MAKE) test

format: $(BIN)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The pages of docs/ and the API reference: open site/index.html.
docs: $(BIN)/.package
	$(BIN)/python $(PIP) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The newest versions that setup.py allows, in a fresh environment of Python 3.11.
lock:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "error: the lock file is for Python 3.11: make lock PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)-lock
	$(VENV)-lock/bin/python $(PIP) -e '.[dev]'
	$(VENV)-lock/bin/python -m pip freeze --exclude-editable > requirements-lock.txt
	rm -rf $(VENV)-lock

clean:
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .hypothesis
