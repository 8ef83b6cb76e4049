# Every word that a laptop, CI and the documentation use. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The first one that runs and is new enough: a name alone may be a shim for nothing.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
PACKAGES := odin engine relay worker mocks chaos checker cluster bench
COMPILE := $(BIN)/pip-compile -q --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(STAMP) ## make .venv with everything in it

$(STAMP): pyproject.toml requirements.txt requirements-dev.txt
	@test -n "$(PYTHON)" || { echo "odin needs Python 3.11 or newer: set PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r requirements.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: lock
lock: venv ## pin the requirements anew from pyproject.toml and requirements-dev.in
	$(COMPILE) --extra server --extra dev pyproject.toml -o requirements.txt
	$(COMPILE) requirements-dev.in -o requirements-dev.txt

.PHONY: fmt
fmt: venv ## format the code and sort its imports
	$(BIN)/ruff check --quiet --select I --fix .
	$(BIN)/ruff format --quiet .

.PHONY: lint
lint: venv ## ruff, formatting, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) deploy tests
	$(BIN)/lint-imports

.PHONY: test-core
test-core: venv ## the tests that need no server, for each save
	$(PYTEST) -q tests/core tests/architecture

.PHONY: test
test: venv ## every test; sets up Postgres, RabbitMQ and Valkey first
	$(BIN)/python -m cluster.servers --prepare
	$(PYTEST) -q tests

.PHONY: repeat
repeat: venv ## the tests of TIER, TIMES times in random order; ends at the first red one
	$(BIN)/python -m cluster.servers --prepare
	@for turn in $$(seq $(or $(TIMES),10)); do \
		echo "turn $$turn"; $(PYTEST) -q $(or $(TIER),tests) || exit 1; done

.PHONY: hunt
hunt: venv ## random examples for the properties of the core, other ones each time (HUNT="tests...")
	ODIN_TEST_PROFILE=hunt $(PYTEST) -q --timeout 1800 $(or $(HUNT),tests/core)

.PHONY: doubt
doubt: venv ## lose the reply to one database call in a hundred, under the tests of store, engine and doors
	ODIN_TEST_DOUBT=$(or $(DOUBT),0.01) $(PYTEST) -q tests/store tests/engine tests/door

.PHONY: mutations
mutations: venv ## take each guard out of a copy and see its tests fail (MUTATIONS="part of a name")
	$(BIN)/python -m tests.mutations $(MUTATIONS)

.PHONY: faults
faults: venv ## break a cluster in every way and judge it (FAULTS="NAME ... --alone")
	$(BIN)/python -m tests.faults $(FAULTS)

.PHONY: simulate
simulate: venv ## whole clusters on virtual time, on seeds of today (SIMULATE="--seed 7", "--minutes 10")
	$(BIN)/python -m tests.simulation $(or $(SIMULATE),--minutes 2 --from $(shell date +%s))

.PHONY: install-smoke
install-smoke: venv ## build the wheel, install it with pip into an empty environment, try and time it
	$(BIN)/python -m tests.install.smoke

.PHONY: demo
demo: venv ## the demo on this machine (ODIN_DEMO_SECONDS ends it after that long)
	$(BIN)/python -m cluster demo

.PHONY: up
up: venv ## start a local cluster and leave it running
	$(BIN)/python -m cluster up -d

.PHONY: down
down: venv ## stop the local cluster
	$(BIN)/python -m cluster down

.PHONY: compose-smoke
compose-smoke: venv ## try compose.yaml out with podman (as root; up to ten minutes, no registry)
	$(BIN)/python -m deploy.smoke

.PHONY: compose-chaos
compose-chaos: venv ## break compose.yaml in containers by the Docker API, with podman (COMPOSE_CHAOS="NAME ...")
	$(BIN)/python -m deploy.smoke.experiments $(COMPOSE_CHAOS)

.PHONY: bench
bench: venv ## measure throughput and latency (BENCH="--workloads W1 --runs 5")
	$(BIN)/python -m bench $(BENCH)

.PHONY: schema
schema: venv ## write schema/current.sql from the migrations
	$(BIN)/python -m cluster.servers.schema schema/current.sql

.PHONY: clean
clean: ## remove what was built here, the virtual environment and odin's data included
	rm -rf .venv .odin dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
