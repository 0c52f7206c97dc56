# Entry points of the repository; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
# What `make up` starts; e.g. `make up NODES=3 LAB_ARGS="--dual --gateway local"`.
NODES ?= 2
LAB_ARGS ?=
LAB := target/debug/lab
# A fresh checkout takes minutes, so show progress on a terminal, and only errors in a log.
QUIET := $(shell [ -t 2 ] || echo --quiet)
BUILD_LAB = $(CARGO) build --locked $(QUIET) --package lab

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables of make up: NODES=3 (how many nodes; default 2), LAB_ARGS="--dual --gateway local" (other options of lab up).'
	@echo 'Of make up, down and status: OVNKUBE_LAB_NAME=second (another lab beside the first; default: default).'

.PHONY: prerequisites
prerequisites: ## install missing Debian packages, Rust and Go; report what cannot be installed
	@lab/prerequisites.sh

# What compiling needs, for targets that need neither root nor the lab.
.PHONY: compiler
compiler:
	@lab/prerequisites.sh --compiler

.PHONY: build
build: prerequisites ## build everything
	@$(CARGO) build --workspace --locked

.PHONY: shim
shim: prerequisites ## the CNI plugin as it is installed: small and static, target/shim/ovn-k8s-cni-overlay
	@crates/cni-shim/build.sh

.PHONY: up
up: prerequisites ## a running cluster on this machine with our network: Kubernetes, OVN, two nodes, an application
	@echo "building the lab and our network's image (minutes the first time, else seconds)"
	@$(BUILD_LAB)
	@deploy/image/build.sh
	@$(LAB) up --network ovnkube --nodes $(NODES) $(LAB_ARGS)

.PHONY: image
image: prerequisites ## the release binaries of the image, for a registry: target/image
	@deploy/image/build.sh --release

# An existing program, so that a cluster can be removed while the sources do not compile.
.PHONY: down
down: prerequisites ## remove that cluster and everything it created
	@[ -x $(LAB) ] || $(BUILD_LAB)
	@$(LAB) down

.PHONY: status
status: prerequisites ## what runs where
	@[ -x $(LAB) ] || $(BUILD_LAB)
	@$(LAB) status

.PHONY: check
check: compiler ## format, clippy, documentation, the repository's rules (house)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	$(CARGO) run --quiet --locked --package house

# Integration tests that run as an ordinary user, without the lab and without Go.
UNIT_TESTS := admin_policies adoption bare_ovsdb bridge_command check command_line configuration deleted figures former_identities fuzz golden \
  host_configurations layout lessons metric_names oracle plugin pod_options policies pools process properties purity random requests \
  rotation round_trip rows rules running_role scenarios scripted services_agree shim simulation truth_table
# Integration tests that need root, the lab or Go: `make test` runs them. `house` requires every test program in one of the lists.
LAB_TESTS := alerts attack cluster controller db gateway installed lab memory_against_real node ovsdb pki plan_command real real_server relay \
  rename server_schemas torture
# Unit tests of the lab's prober, which enters network namespaces.
NEED_ROOT := probe::tests:: probe::station:: probe::netns_runtime::
# Crates with documentation examples.
DOCUMENTED := backoff cni netmodel ovn-schema ovsdb
.PHONY: unit
unit: export SIMULATION_SEEDS ?= 500
unit: compiler ## the fast tests: unit tests, documentation examples, and integration tests that need no root, no lab and no Go
	$(CARGO) test --workspace --locked --lib --bins $(UNIT_TESTS:%=--test %) $(RUNNER) \
	  -- $(NEED_ROOT:%=--skip %)
	$(CARGO) test --locked --doc $(DOCUMENTED:%=--package %)

RUNNER := --config "target.'cfg(unix)'.runner = ['$(CURDIR)/lab/test-program.sh']"
# The two longest test programs run beside all others.
LONG_TESTS := cluster controller
.PHONY: test
test: check supplies ## everything: the checks, all tests, real components in the lab; prints the ten slowest tests
	@$(CARGO) build --locked --quiet --package house
	$(CARGO) test --workspace --locked --no-run
	target/debug/run-tests \
	  $(CARGO) test --workspace --locked --no-fail-fast $(LONG_TESTS:%=--test %) $(RUNNER) \
	  --and env SKIP_TESTS="$(LONG_TESTS)" $(CARGO) test --workspace --locked --no-fail-fast $(RUNNER)

.PHONY: deny
deny: ## licences, sources and duplicates of dependencies (deny.toml), by cargo-deny, which is installed if it is missing
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(CARGO) deny --locked check licenses sources bans

# Kubernetes' own tests. CONFORMANCE: network (SIG Network), policy-api (network-policy-api's suite), or all (both, and the
# conformance specs of every other SIG); FAMILY: v4, v6, dual; GATEWAY: shared, local; FOCUS: a regular expression that
# specs' names must match.
CONFORMANCE ?= network
FAMILY ?= v4
GATEWAY ?= shared
FOCUS ?=
export FOCUS
.PHONY: conformance
conformance: prerequisites ## Kubernetes' own tests on a lab of three nodes, into target/conformance: CONFORMANCE=network|policy-api|all FAMILY= GATEWAY= FOCUS=
	@$(BUILD_LAB)
	@deploy/image/build.sh
	@$(LAB) --name $(or $(OVNKUBE_LAB_NAME),conformance) conformance --which $(CONFORMANCE) --family $(FAMILY) --gateway $(GATEWAY) --focus "$$FOCUS"

# DISRUPTION_ARGS="--only agent-restart,northd-restart --short" for a quick look at parts of it.
DISRUPTION_ARGS ?= --write docs/disruption.md
.PHONY: disruption
disruption: prerequisites ## packets lost during restarts, failovers and changes, beside a control (about an hour on a quiet machine): docs/disruption.md, target/disruption; DISRUPTION_ARGS=
	@$(BUILD_LAB)
	@deploy/image/build.sh
	@$(LAB) --name $(or $(OVNKUBE_LAB_NAME),disruption) disruption $(DISRUPTION_ARGS)

# How many rounds. A failure prints the variable that replays it.
SOAK ?= 10
.PHONY: soak
soak: supplies ## the randomized tests with new seeds and for longer: SOAK=10 rounds
	@for round in $$(seq $(SOAK)); do \
	  export OVSDB_SEED=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') OVSDB_TRANSACTIONS=5000; \
	  echo "== round $$round of $(SOAK): OVSDB_SEED=$$OVSDB_SEED"; \
	  $(CARGO) test --quiet --locked --package ovsdb --test memory_against_real --test fuzz; \
	  PROPTEST_RNG_SEED=$$OVSDB_SEED PROPTEST_CASES=5000 $(CARGO) test --quiet --locked --package netmodel --package cni; \
	  PROPTEST_RNG_SEED=$$OVSDB_SEED PROPTEST_CASES=5000 $(CARGO) test --quiet --locked --package ovsdb --lib; \
	done
	SIMULATION_SEEDS=$$((10000 * $(SOAK))) $(CARGO) test --locked --package topology --test simulation
	TRUTH_CLUSTERS=$$((1000 * $(SOAK))) $(CARGO) test --locked --package reachability --test truth_table

# TORTURE_SEED replays an order of faults. The short form is part of `make test`.
TORTURE_SUITES ?= trixie sid
TORTURE_FAULTS ?= 120
TORTURE_SECONDS ?= 1800
TORTURE_SEED ?=
.PHONY: torture
torture: prerequisites ## writes to the databases while their members suffer faults, on OVS 3.5 and the newest: docs/torture.md; TORTURE_SEED= TORTURE_FAULTS= TORTURE_SECONDS= TORTURE_SUITES=
	@seed=$(TORTURE_SEED); seed=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	for suite in $(TORTURE_SUITES); do \
	  echo "== node image $$suite: TORTURE_SEED=$$seed"; \
	  OVNKUBE_LAB_SUITE=$$suite TORTURE_SEED=$$seed TORTURE_FAULTS=$(TORTURE_FAULTS) TORTURE_SECONDS=$(TORTURE_SECONDS) \
	    $(CARGO) test --locked --package ovnkube --test torture -- --nocapture; \
	done

.PHONY: supplies
supplies: prerequisites
	@$(BUILD_LAB)
	@$(LAB) prepare

# Real faults; `make test` has the rule tests of all alerts.
.PHONY: test-alerts
test-alerts: supplies ## every alert, with real faults and a real Prometheus (about 25 minutes)
	$(CARGO) test --locked --package ovnkube --test alerts -- --include-ignored --test-threads 1

# Takes hostPID and each host directory away from the agent's pod; `make test` does so with its capabilities.
.PHONY: test-permissions
test-permissions: supplies ## each access of the agent's pod to its host: what fails without it (some minutes)
	$(CARGO) test --locked --package ovnkube --test cluster each_access -- --include-ignored --nocapture

.PHONY: test-relays
test-relays: supplies ## relays of the southbound database, installed from deploy/relay/relay.yaml, with the packet matrix (three minutes)
	$(CARGO) test --locked --package ovnkube --test cluster relays:: -- --include-ignored --nocapture

# Lifetimes of minutes instead of months; what kubelet delivers late takes most of the time.
.PHONY: test-pki
test-pki: supplies ## rotations of CA and certificate under a running cluster, with faults of the signer (eight minutes)
	$(CARGO) test --locked --package ovnkube --test cluster rotation:: -- --include-ignored --nocapture

# The lab's own tests on the other node images: Debian 12 (OVN 23.03) and unstable (OVN 26.03).
.PHONY: test-suites
test-suites: prerequisites ## the lab's own tests on all three node images
	@for suite in bookworm trixie sid; do \
	  echo "== node image $$suite"; OVNKUBE_LAB_SUITE=$$suite $(CARGO) test --locked --package lab; \
	done

.PHONY: bench
bench: prerequisites ## all benchmark figures, into target/bench/*.json
	$(CARGO) build --release --locked --package bench
	target/release/calibrate
	target/release/bench-lab
	@$(MAKE) --no-print-directory bench-ovsdb
	@$(MAKE) --no-print-directory bench-controller
	@$(MAKE) --no-print-directory bench-node
	@$(MAKE) --no-print-directory bench-plan
	@$(MAKE) --no-print-directory bench-database
	@$(MAKE) --no-print-directory bench-pki
	@$(MAKE) --no-print-directory bench-failover
	@$(MAKE) --no-print-directory bench-punt

.PHONY: bench-ovsdb
bench-ovsdb: prerequisites ## the figures of the OVSDB client alone, into target/bench/ovsdb.json
	$(CARGO) build --release --locked --package bench
	target/release/bench-ovsdb

# BENCH_ARGS="--only burst,restart --pods 1000" for a quick look at parts of it.
BENCH_ARGS ?=
.PHONY: bench-controller
bench-controller: prerequisites ## the figures of the controller alone, into target/bench/controller.json
	$(CARGO) build --release --locked --package bench --package ovnkube
	target/release/bench-controller $(BENCH_ARGS)

.PHONY: bench-node
bench-node: prerequisites shim ## the figures of the CNI plugin and the node agent, into target/bench/node.json
	$(CARGO) build --release --locked --package bench --package ovnkube
	target/release/bench-node $(BENCH_ARGS)

# BENCH_ARGS="--only small,relay --divide 5" for a quick look at parts of it.
.PHONY: bench-database
bench-database: prerequisites ## the figures of the databases, relays and the whole control plane, into target/bench/database.json
	$(CARGO) build --release --locked --package bench --package ovnkube
	target/release/bench-database $(BENCH_ARGS)

# BENCH_ARGS="--only tls" or "--only rotation --sessions 50" for a quick look at parts of it.
.PHONY: bench-pki
bench-pki: prerequisites ## a rotation of certificates under 500 sessions, what TLS costs, and the signer's memory, into target/bench/pki.json
	$(CARGO) build --release --locked --package bench --package ovnkube
	target/release/bench-pki $(BENCH_ARGS)

.PHONY: bench-plan
bench-plan: prerequisites ## how `plan --can` grows with policies' blocks, into target/bench/plan.json
	$(CARGO) build --release --locked --package bench --bin bench-plan
	target/release/bench-plan

# BENCH_ARGS="--kills 100" is the full form; "--only nb-leader,node" for parts of it.
.PHONY: bench-failover
bench-failover: prerequisites ## a pod's wait for its network after a database leader, a controller or a control-plane node failed, into target/bench/failover.json
	$(CARGO) build --release --locked --package bench --bin bench-failover
	@deploy/image/build.sh --release
	target/release/bench-failover $(BENCH_ARGS)

.PHONY: bench-punt
bench-punt: prerequisites ## a pod's first packet while another pod floods ovn-controller, into target/bench/punt.json
	$(CARGO) build --release --locked --package bench --package ovnkube
	target/release/bench-punt

.PHONY: clean
clean: ## remove build results (the lab's cache stays, in OVNKUBE_LAB_CACHE)
	$(CARGO) clean
