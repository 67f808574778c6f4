# What developers do here, one screen. CI runs `make test` and nothing else.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
# Arguments for pytest (`make test ARGS="-k cursor"`) and for `penstock serve` (`make run ARGS=…`).
ARGS ?=

STAMPS := .venv/.stamps

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## ---- setting up -------------------------------------------------------------------------------
# Every step leaves a stamp: what is done and unchanged is not done again.

.PHONY: setup
setup: $(STAMPS)/project $(STAMPS)/js ## Create .venv and install everything, exactly as locked

$(STAMPS)/system: scripts/system.sh
	@PYTHON=$(PYTHON) scripts/system.sh
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@mkdir -p $(@D) && touch $@

$(STAMPS)/python: requirements/lock.txt $(STAMPS)/system
	@echo "Installing what requirements/lock.txt names (a few minutes, the first time) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(STAMPS)/project: pyproject.toml $(STAMPS)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(STAMPS)/js: tests/js/package.json tests/js/package-lock.json $(STAMPS)/system
	@cd tests/js && npm ci --silent --no-audit --no-fund
	@touch $@

# The programs that use the official Java, Go and Rust clients. Where a toolchain is missing, a line says so.
CLIENTS := $(foreach language,java go rust,tests/clients/build/$(language)/.built)
tests/clients/build/java/.built: $(wildcard tests/clients/java/*)
tests/clients/build/go/.built: $(wildcard tests/clients/go/*)
tests/clients/build/rust/.built: $(wildcard tests/clients/rust/*)
$(CLIENTS): tests/clients/build/%/.built: tests/clients/build.sh $(STAMPS)/toolchains
	@echo "Building the user of the $* client (minutes, the first time) …"
	@tests/clients/build.sh $*
	@touch $@

# The real brokers that tests stand before, and Spark's connector of S3.
BROKERS := $(foreach broker,pulsar kafka s3a,tests/clusters/build/$(broker)/.built)
$(BROKERS): tests/clusters/build/%/.built: scripts/%.sh scripts/brokers.sh $(STAMPS)/toolchains
	@echo "Fetching $* (minutes, the first time) …"
	@scripts/$*.sh fetch
	@touch $@

# The oldest versions that pyproject.toml allows.
OLDEST := tests/oldest/build/.built
$(OLDEST): requirements/oldest.txt scripts/oldest.sh $(STAMPS)/python
	@echo "Installing the oldest dependencies beside the locked ones …"
	@scripts/oldest.sh fetch
	@touch $@

$(STAMPS)/toolchains: scripts/toolchains.sh
	@scripts/toolchains.sh
	@mkdir -p $(@D) && touch $@

## ---- using it ---------------------------------------------------------------------------------

.PHONY: demo
demo: $(STAMPS)/project ## Show what Penstock does (ONCE=1: run through and leave)
	@$(BIN)/penstock demo $(if $(ONCE),--once) $(ARGS)

.PHONY: demo-pulsar
demo-pulsar: $(STAMPS)/project tests/clusters/build/pulsar/.built ## The same through an Apache Pulsar that is started for it
	@PYTHON=$(BIN)/python scripts/pulsar.sh demo $(if $(ONCE),--once) $(ARGS)

.PHONY: demo-kafka
demo-kafka: $(STAMPS)/project tests/clusters/build/kafka/.built ## The same through an Apache Kafka that is started for it
	@PYTHON=$(BIN)/python scripts/kafka.sh demo $(if $(ONCE),--once) $(ARGS)

.PHONY: run
run: $(STAMPS)/project ## Serve, with the defaults
	@$(BIN)/penstock serve $(ARGS)

.PHONY: docs
docs: $(STAMPS)/docs ## Build the documentation into site/ (open site/index.html)
	@.venv/docs/bin/zensical build --strict --clean

# In an environment of its own: what builds the site is no matter of who serves or tests.
$(STAMPS)/docs: requirements/docs.txt $(STAMPS)/system
	@test -x .venv/docs/bin/python || $(PYTHON) -m venv .venv/docs
	@.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

## ---- checking it ------------------------------------------------------------------------------

.PHONY: test
test: setup lint types layers $(CLIENTS) $(BROKERS) $(OLDEST) ## Everything CI checks: style, types, layers, all tests
	@$(BIN)/python scripts/suite.py $(ARGS)

.PHONY: clients
clients: $(STAMPS)/project $(CLIENTS) ## Only the users in Java, Go and Rust (official clients)
	@$(BIN)/python -m pytest tests/clients $(ARGS)

.PHONY: clusters
clusters: $(STAMPS)/project $(BROKERS) ## Only the tests before real brokers (Pulsar, Kafka)
	@$(BIN)/python -m pytest tests/clusters $(ARGS)

.PHONY: unit
unit: $(STAMPS)/project ## Only the fast tests: no sockets, no Spark
	@$(BIN)/python -m pytest tests/unit $(ARGS)

.PHONY: oldest
oldest: $(STAMPS)/project $(OLDEST) ## The fast tests on the oldest dependencies
	@scripts/oldest.sh run $(BIN)/python -m pytest tests/unit $(ARGS)

.PHONY: beside
beside: $(STAMPS)/project ## Resolve Penstock beside popular packages (network, minutes)
	@$(BIN)/python scripts/beside.py $(ARGS)

.PHONY: lint
lint: $(STAMPS)/project ## Check style
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

.PHONY: fmt
fmt: $(STAMPS)/project ## Mend style
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

.PHONY: types
types: $(STAMPS)/project ## Check types
	@$(BIN)/mypy --strict src

.PHONY: layers
layers: $(STAMPS)/project ## Check who imports whom
	@$(BIN)/lint-imports

.PHONY: deploy-check
deploy-check: ## Check deploy/ with helm, the schemas of Kubernetes, promtool and systemd (minutes, the first time)
	@scripts/deploy-check.sh

.PHONY: container-check
container-check: ## Build the container file on a Debian made for it, and run the image (root; minutes)
	@scripts/container-check.sh

.PHONY: systemd-check
systemd-check: ## Start the systemd unit on a Debian that is booted for it (root; minutes)
	@scripts/systemd-check.sh

.PHONY: deep
deep: $(STAMPS)/project ## Let the property tests look further (minutes, other examples each time)
	@HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest --timeout=3600 tests/property tests/unit $(ARGS)

# What takes a short form in `make test`: endpoints under fuzz, crowds, renewed certificates, mixed clients with faults.
SOAKS := tests/soak tests/integration/test_limits.py tests/integration/test_memory_attacks.py tests/integration/test_tls_renewal.py tests/pipeline/test_declared_changes.py \
  tests/integration/test_endpoints_fuzz.py tests/integration/test_openapi_fuzz.py tests/integration/test_small_disk.py \
  tests/pipeline/test_kills.py tests/pipeline/test_kills_tasks.py tests/pipeline/test_kills_server.py \
  tests/pipeline/test_mixed.py tests/pipeline/test_cluster.py tests/clusters/test_pulsar_faults.py tests/clusters/test_kafka_faults.py tests/clusters/test_kafka_faults_owners.py \
  tests/clusters/test_demo_kafka.py

.PHONY: soak
soak: $(STAMPS)/project ## Hammer a server for long, with faults (half an hour; progress is shown)
	@PENSTOCK_SOAK=1 $(BIN)/python -m pytest -s --timeout=3600 $(SOAKS) $(ARGS)

.PHONY: bench
NAME ?= startup rest rest_consume websocket workers requests latency memory schemas idle store_floor codec kafka_rest binary binary_pulsar pulsar_gateway kafka_gateway registry rest_proxy fleet client spark_scan spark_alone spark_stream spark_decode spark_sink spark_lake spark_latency
bench: $(STAMPS)/project ## Measure against the floors (NAME=rest: one of them)
	@for bench in $(NAME); do echo "== $$bench"; $(BIN)/python -m benchmarks.$$bench $(ARGS) || exit 1; done

## ---- keeping it -------------------------------------------------------------------------------

.PHONY: proto
proto: $(STAMPS)/project ## Compile src/penstock/wire/pulsar.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=src --pyi_out=src \
	  --descriptor_set_out=src/penstock/wire/pulsar.binpb src/penstock/wire/pulsar.proto
	@# Schema.Type.None is good protobuf, but no Python name: the stubs have to do without it.
	@sed -i.old -E '/^ *None: /d' src/penstock/wire/pulsar_pb2.pyi && rm src/penstock/wire/pulsar_pb2.pyi.old

.PHONY: lock
lock: $(STAMPS)/project ## Resolve pyproject.toml again (ARGS=--upgrade: newest versions)
	@scripts/lock.sh $(ARGS)
	@cd tests/js && npm install --package-lock-only --silent

.PHONY: dist
dist: $(STAMPS)/project ## Build the wheel and the sdist into dist/, and check them (ARGS=--release: for publishing)
	@scripts/dist.sh $(ARGS)

.PHONY: clean
clean: ## Remove everything that can be made again
	@rm -rf .venv tests/js/node_modules tests/clients/build tests/clusters/build tests/oldest/build benchmarks/load/build build dist site .cache .coverage .coverage.* htmlcov
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
