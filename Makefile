# From nothing with Python ≥ 3.11, JDK 17 and Maven. Everything made here stays in this folder: .tools, .venv, build, target.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
KAFKA_VERSION ?= 4.3.1
export KAFKA_VERSION
export UV_PYTHON_DOWNLOADS := never
# The certificates the machine trusts, as pip and Maven do: behind a company proxy the bundled ones refuse the registry.
export UV_SYSTEM_CERTS := true

UV := .tools/uv/bin/uv
RUN := .venv/bin/python
ENVIRONMENT := .venv/.synced
SHIM := java-shim/target/dist/.built
GATEWAY := build/.gateway
JOBS ?= 2
FAST := not slow and not bench and (not e2e or smoke)

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: setup
setup: programs $(ENVIRONMENT) $(SHIM) .venv/.kernels ## environment, shim, and jars of broker and Spark

.PHONY: demo
demo: setup ## the main job, end to end on a stock broker (KAFKA_VERSION=4.4.0 make demo for the other version)
	.venv/bin/tierberg demo --data-dir demo-data

.PHONY: stack
stack: setup ## S3, REST catalog, bridge and broker as local processes, until Ctrl-C (TRINO=1: Trino too)
	$(RUN) -m tierberg.stack --data-dir stack-data $(if $(TRINO),--trino)

.PHONY: test
test: setup $(GATEWAY) ## the whole fast suite, with a sample of the tests on a real broker
	$(RUN) -m pytest -n $(JOBS) --dist loadfile -m "$(FAST)" --durations 20

.PHONY: check
check: $(ENVIRONMENT) ## style, types, import rules, unit and property tests with few examples
	$(MAKE) --no-print-directory -j $(JOBS) --output-sync lint
	HYPOTHESIS_PROFILE=quick $(RUN) -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not bench and not e2e" tests/unit tests/property

.PHONY: test-slow
test-slow: setup $(GATEWAY) ## the slow tests that need no broker
	$(RUN) -m pytest -m "slow and not bench and not e2e"

.PHONY: test-shim
test-shim: programs $(ENVIRONMENT) ## the shim's own tests
	mvn -B -q -f java-shim/pom.xml verify

.PHONY: e2e
e2e: setup $(GATEWAY) ## every test on a real broker
	$(RUN) -m pytest -m "e2e and not faults and not cluster" --timeout 900

.PHONY: catalogs
catalogs: $(ENVIRONMENT) ## copy, conflict and delete on every catalog and store: PostgreSQL, Glue, OAuth2, lent keys, GCS, Azure
	$(RUN) -m pytest -m e2e tests/e2e/test_e2e_catalog_*.py tests/e2e/test_e2e_postgres_catalog.py

.PHONY: faults
faults: setup $(GATEWAY) ## kill -9 of bridge and broker at every fail point; ends with a table and `N passed, N failed`
	$(RUN) -m pytest -m faults -p no:randomly -q tests/faults_matrix

.PHONY: chaos
chaos: setup $(GATEWAY) ## MINUTES=n of random faults, BROKERS=1|3, SEED=, FAULTS=: then look whether anything is lost
	$(RUN) -m tests.chaos --minutes $(or $(MINUTES),10) --brokers $(or $(BROKERS),1) $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),"--faults=$(FAULTS)")

.PHONY: cluster
cluster: setup $(GATEWAY) ## every test on three brokers and three bridges, with S3 and a REST catalog
	$(RUN) -m pytest -m cluster

.PHONY: bench
bench: setup ## measure, and compare with benchmarks/measures.toml
	$(RUN) -m benchmarks run

.PHONY: bench-types
bench-types: setup ## the measures of typed values alone, beside per-record libraries
	$(RUN) -m benchmarks run --only typed_rate --only typed_size --only typed_damage

.PHONY: bench-copy2
bench-copy2: setup ## the measures of projections alone: runs, files, queries, and the whole bill beside a consumer
	$(RUN) -m benchmarks run --only copy2

.PHONY: fuzz
fuzz: setup $(GATEWAY) ## bytes of producers, peers, stores and operators, bent: MINUTES=30 (or INPUTS=200000 of each target)
	$(RUN) -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS)) --minutes $(or $(MINUTES),$(if $(INPUTS),0,30))

.PHONY: histories
histories: $(ENVIRONMENT) ## random histories of Kafka, stores and bridges against the publish plan: STEPS= in each of six worlds, SEED=
	$(RUN) -m tests.histories --steps $(or $(STEPS),1000000) --seed $(or $(SEED),0)

.PHONY: cdc
cdc: setup ## projections of change streams: every form, replica identity and way of writing, by random lives of a table; SEED=
	TIERBERG_CDC=all $(if $(SEED),TIERBERG_CDC_SEED=$(SEED)) $(RUN) -m pytest -q -p no:randomly tests/projections/test_projections_cdc.py tests/projections/test_projections_cdc_histories.py

.PHONY: sabotage
sabotage: setup $(GATEWAY) ## plant known bugs, and ignore each setting, one after another; each must turn a named test red
	$(RUN) -m tests.sabotage
	$(RUN) -m tests.sabotage --settings

.PHONY: lint lint-style lint-types lint-imports
lint: lint-style lint-types lint-imports ## style, types, import rules

lint-style: $(ENVIRONMENT)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

lint-types: $(ENVIRONMENT)
	.venv/bin/mypy

lint-imports: $(ENVIRONMENT)
	.venv/bin/lint-imports

.PHONY: fmt
fmt: $(ENVIRONMENT) ## put the code into its one form
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

.PHONY: rooms
rooms: $(ENVIRONMENT) ## draw docs/rooms.md, which folder imports which, from the code
	$(RUN) -m tests.support.rooms_page

.PHONY: shim
shim: $(SHIM) ## build the jar for the broker: java-shim/target/dist/

.PHONY: wheel
wheel: $(SHIM) ## the wheel, with the broker's jar in it: dist/
	$(UV) build --quiet --wheel --out-dir dist

.PHONY: clean
clean: ## remove what was built and fetched, and the data of demo and stack
	rm -rf .venv .tools build dist demo-data stack-data chaos-data java-shim/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Before anything is fetched, not in its midst.
.PHONY: programs
programs:
	@for program in java mvn; do command -v $$program >/dev/null || { echo "$$program is not on PATH: JDK 17 and Maven are needed" >&2; exit 1; }; done

$(UV):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv .tools/uv
	.tools/uv/bin/python -m pip install --quiet uv==0.13.8

$(ENVIRONMENT): pyproject.toml uv.lock | $(UV)
	$(UV) sync --quiet --locked --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	touch $@

# Kernels for every bridge of this environment; without them the first start in an empty folder compiles for a minute.
KERNELS := .venv/.kernels
$(KERNELS): $(ENVIRONMENT) $(shell find converter -name '*.py' 2>/dev/null)
	.venv/bin/tierberg warmup
	touch $@

# The S3 server of the tests, where there is Go to build it: that takes longer than a test may. Without Go they skip it.
$(GATEWAY): tierberg/stack/servers/versitygw.py | $(ENVIRONMENT)
	$(RUN) -c "from tierberg.stack.servers.versitygw import binary, can_be_had; can_be_had() and binary()"
	mkdir -p build && touch $@

$(SHIM): java-shim/pom.xml $(shell find java-shim/src/main proto -type f 2>/dev/null) | programs $(ENVIRONMENT)
	mvn -B -q -f java-shim/pom.xml package -DskipTests
	touch $@
