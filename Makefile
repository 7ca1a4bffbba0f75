# `make` prints this help; every target works after scripts/bootstrap.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Compiled modules are kept: without them each of the many programs that tests start compiles all that it imports, half a second of a processor.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := python -m pytest
BENCH ?= engine
# Before commands that only compute, while scripts/test runs tests beside them that wait for timers: these go first.
NICE ?=
# Two halves of a tier, which take about as long, at the same time.
HALVES := $(MAKE) --no-print-directory -j2 --output-sync=target
# What mypy found out in another tree, by hashes of files: most of it holds in a fresh one.
CACHES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
TYPES_KEPT := $(CACHES)/antrea-check/mypy.tar

# Tests of the lab that are named at the end.
SLOW := --durations=20 --durations-min=1

.DEFAULT_GOAL := help
.PHONY: help check static format unit unit-first unit-second process process-first process-second ovs ovs-first ovs-second process-and-ovs covered host lab-test lab-prepared vm parity test-wide test-starved fuzz conformance upstream-e2e policy-conformance bench docs site image flow-image l7-image bgp-image wheel antctl push release publish manifests cni clean clean-all

help: ## print this help
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

check: static ## formatting, lint, types, import contracts, generated docs current
	$(PYTEST) -q tests/unit -k "generated or house" --no-header

static: # all of it that is no test of the tier unit
	@[[ -e .mypy_cache ]] || tar -xf $(TYPES_KEPT) 2>/dev/null || true
	$(NICE) ruff format --check .
	$(NICE) ruff check .
	$(NICE) mypy
	set -e; for tier in ovs host lab vm parity wide; do MYPYPATH=tests/$$tier:tests/shared $(NICE) mypy --no-error-summary tests/$$tier; done
	$(NICE) lint-imports --config .importlinter
	@mkdir -p $(dir $(TYPES_KEPT)) && tar -cf $(TYPES_KEPT).$$$$ .mypy_cache && mv $(TYPES_KEPT).$$$$ $(TYPES_KEPT) || true

format: ## let ruff format and repair what it can
	ruff format .
	ruff check --fix .

unit: ## values, codecs, config, engine; nothing outside
	coverage erase
	$(HALVES) unit-first unit-second

unit-first:
	$(NICE) coverage run --data-file=.coverage.$@ -m pytest $$(scripts/half unit first)

unit-second:
	$(NICE) coverage run --data-file=.coverage.$@ -m pytest $$(scripts/half unit second)

process: ## our programs as processes, servers on loopback and their clients; no root
	$(HALVES) process-first process-second

process-first:
	coverage run --data-file=.coverage.$@ -m pytest $$(scripts/half process first) -m "not wide"

process-second:
	coverage run --data-file=.coverage.$@ -m pytest $$(scripts/half process second) -m "not wide"

ovs: ## real ovs-vswitchd with a dummy datapath
	$(HALVES) ovs-first ovs-second

ovs-first:
	coverage run --data-file=.coverage.$@ -m pytest $$(scripts/half ovs first) -m "not wide"

ovs-second:
	$(PYTEST) $$(scripts/half ovs second) -n 4 --dist loadfile -m "not wide"

process-and-ovs: ## both at a time, for most of it each waits for timers of others; then the coverage, with that of unit
	$(MAKE) --no-print-directory -j4 --output-sync=target process-first process-second ovs-first ovs-second
	$(MAKE) --no-print-directory covered

covered:
	coverage combine -q --keep --data-file=.coverage .coverage.unit-* .coverage.process-* .coverage.ovs-first
	coverage report --skip-covered --show-missing --fail-under=90

host: ## real kernel, nftables and packets in fresh network namespaces (root)
	$(PYTEST) tests/host -n 4 --dist loadfile -m "not wide" --timeout 900 # without caches some wait for the image to be built

lab-test: | lab-prepared ## real Kubernetes nodes with our image and manifest (root)
	$(PYTEST) tests/lab -n 2 --dist loadgroup -m "not wide" --timeout 600 $(SLOW)

lab-prepared: # the programs, images and Debian roots that core tests run
	antrea-lab prepare
	python -c 'from build import debian_root; debian_root.root(debian_root.show, "suricata")'

vm: ## the kernel datapath on a stock kernel under QEMU (root)
	$(PYTEST) tests/vm -m "not wide" --timeout 2300

parity: ## against upstream's own expectations ($$ANTREA_SRC) and recorded answers ($$ANTREA_GOLDEN)
	$(PYTEST) tests/parity

test-wide: ## hours: matrices, long faults, fuzz; writes docs/generated/wide-report.md, and goes on where it was interrupted
	$(PYTEST) -p tests.wide.report -rP -m wide tests --timeout 7200

test-starved: $(if $(findstring lab,$(TIER)$(FILES)),lab-prepared) ## a core tier (TIER: unit, process, ovs, host, lab, vm), or FILES of it, with half of one processor for each group of processes, STARVED_ROUNDS times (root): what a slow machine fails
	scripts/test-starved

fuzz: ## what is hostile or damaged, at random: $$FUZZ_SECONDS for each (20), $$FUZZ_SEED to see one again
	$(PYTEST) -rP -m wide tests/wide -k "fuzz or wide_packets" --timeout 7200

conformance: ## Kubernetes' own [sig-network] specs in a lab of two nodes (root, half an hour), or those that FOCUS finds; writes docs/generated/conformance.md, or with BESIDE=iptables, a mode of kube-proxy, conformance-iptables.md
	scripts/conformance kubernetes

upstream-e2e: ## upstream's own end-to-end tests ($$ANTREA_E2E, its compiled program; TESTS, patterns; SELECTION, another list; NODES, other than two; UPSTREAM_OPTIONS, of the lab) in a lab (root); writes docs/generated/upstream-e2e.md or UPSTREAM_PAGE
	scripts/conformance upstream

policy-conformance: ## network-policy-api's own conformance suite in a lab of two nodes (root); writes docs/generated/policy-conformance.md
	scripts/conformance policy

bench: ## one benchmark: make bench BENCH=engine
	python -m benchmarks.$(BENCH)

docs: ## write the generated pages under docs/generated
	python -P -m antrea.openflow.document > docs/generated/pipeline.md
	python -P -m antrea.config.document
	python -P -m antrea.features.registry.document
	python build/proofs.py

site: ## the documentation as a site in build/out/site, with a search that needs no network
	zensical build --strict

image: cni ## the container image, as an archive in build/out
	python build/image.py

flow-image: cni ## the image of the flow aggregator with its store, as an archive in build/out
	python build/image.py --flow-aggregator

l7-image: ## the image of the engine that judges requests for rules with l7Protocols, as an archive in build/out
	python build/image.py --l7-engine

bgp-image: ## the image of the engine of BGP and BFD with routers, as an archive in build/out
	python build/image.py --bgp-engine

wheel: ## the Python package as a wheel in build/out, with the engine's core compiled for this Python and platform
	python build/wheel.py

antctl: ## antctl as one file in build/out, for Python 3.11 to 3.14 on Linux and macOS
	python build/antctl_file.py

push: image ## the image to a registry: make push TO=registry.example.com/team/antrea [PUSH_OPTIONS=--plain]
	python build/push.py $(TO) $(PUSH_OPTIONS)

release: ## signed files of the commit for amd64 and arm64 in build/out/release: make release KEY=~/.ssh/release [RELEASE_OPTIONS=...] (root)
	helm=$$(python -P -m lab.artifacts) && python build/release.py --helm "$$helm" $(if $(KEY),--key $(KEY)) $(RELEASE_OPTIONS)

publish: ## the release to a registry: make publish TO=registry.example.com/team [PUBLISH_OPTIONS=--plain]
	helm=$$(python -P -m lab.artifacts) && python build/publish.py $(TO) --helm "$$helm" $(PUBLISH_OPTIONS)

cni: ## the static plugin that kubelet runs
	$(MAKE) -C cni

manifests: ## generate the CRDs, the chart's configuration and build/yamls from antrea/apis, antrea/config and the chart; check them
	python build/crds.py
	helm=$$(python -P -m lab.artifacts) && python build/chart.py "$$helm"
	$(PYTEST) -q tests/unit -k manifest --no-header

clean: ## what builds and tests left in the tree
	rm -rf build/out .coverage* .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

clean-all: clean ## also the caches outside the tree and .venv; lists them first
	@c="$${ANTREA_LAB_CACHE:-$(CACHES)/antrea-lab}"; du -sh "$$c" $(dir $(TYPES_KEPT)) .venv 2>/dev/null || true; rm -rf "$$c" $(dir $(TYPES_KEPT)) .venv
