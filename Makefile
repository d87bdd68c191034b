# Every chore is one target; CI runs `make test` and nothing else.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
N ?= 5
SUITE ?= all
export PYTHONDONTWRITEBYTECODE ?= 1

# a file's tests stay together: some share what takes long to make
workers = --numprocesses=2 --dist=loadfile

# a cluster of our own, unless KUBECONFIG names one
cluster = $(if $(KUBECONFIG),,$(PY) -m tests.e2e.cluster up)

.PHONY: help install lock demo demo-cluster images kills test check unit helms integration clusters e2e e2e-real e2e-light e2e-kind e2e-chart e2e-standalone faults mutants bench cluster-up cluster-down generate fmt

help: ## Say what there is to do
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.installed ## Make .venv with everything in it
.venv/.installed: requirements-dev.lock pyproject.toml
	python3 -m venv .venv
	.venv/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	.venv/bin/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock: install ## Lock the dependencies again, with hashes and no addresses
	.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra kafka --extra otel pyproject.toml -o requirements.lock
	.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --group dev pyproject.toml -o requirements-dev.lock
	.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --group images -o operator/requirements-build.lock

check: install helms ## Lint, types, import borders, generated files, the chart
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m tests.support.generated --check
	$(PY) -m pytest -q tests/unit/test_chart.py -k lint

generate: install helms ## Write the generated files: CRD, schema, manifests, state machine
	$(PY) -m tests.support.generated

fmt: install ## Format the code
	.venv/bin/ruff check -q --fix --exit-zero .
	.venv/bin/ruff format -q .

unit: install helms ## Pure tests, in seconds
	$(PY) -m pytest -q tests/unit

helms: install
	$(PY) -m tests.e2e.cluster build helm

# The tests of a folder. What fails is tried once more, from the start and alone in its suite: beside four processes on two cores
# one may be later than a test grants. The first failure is shown as any other, and whoever sees it mends the test.
remembered = -o cache_dir=.pytest_cache/$@
define suite
	$(PY) -m pytest -q $(remembered) $(2) $(1) || { [ $$? -eq 1 ] && echo "==> $@: what failed, once more" && \
	  $(PY) -m pytest -q $(remembered) --last-failed --last-failed-no-failures=none $(1); }
endef

integration: install ## Tests on a real PostgreSQL
	$(call suite,tests/integration,$(workers))

clusters: install helms
	$(PY) -m tests.e2e.cluster build light
	$(cluster)

# side by side, as they wait more than they work: on the kind cluster, and elsewhere
beside = $(MAKE) --no-print-directory --jobs=2 --keep-going

e2e: clusters ## The suite on a light cluster, on the real one (or any by KUBECONFIG=), and on none
	$(beside) e2e-real e2e-light e2e-standalone

# one after the other, as both install on the one cluster; a failure of the first says nothing of the second
e2e-real: install
	@failed=0; \
	$(MAKE) --no-print-directory e2e-kind || failed=1; \
	$(MAKE) --no-print-directory e2e-chart || failed=1; \
	exit $$failed

e2e-kind e2e-light e2e-chart: e2e-%: install
	$(call suite,tests/e2e/$*)

e2e-standalone: export CLOCKHAND_E2E = standalone
e2e-standalone: install ## The suite of the real cluster on `clockhand dev`, which is none
	$(call suite,tests/e2e/kind)

test: check unit clusters ## Everything
	$(beside) e2e-real integration e2e-light e2e-standalone

faults: install ## Kill, stop and cut at every step, N times each (N=20)
	$(PY) -m tests.faults run --times $(N)

mutants: install ## Take each guard away and see that the checks notice
	$(PY) -m tests.faults mutants

bench: install ## Measure, beside a baseline: SUITE=pods, list, ... or all
	$(PY) -m benchmarks $(SUITE)

images: install ## Build the images; prints their sizes, compressed and unpacked
	$(PY) -m tests.e2e.cluster images

cluster-up: install ## A real Kubernetes for tests; prints how to use it
	$(PY) -m tests.e2e.cluster up

cluster-down: install ## Take it away again, with all its traces
	$(PY) -m tests.e2e.cluster down

demo: install ## From a clone to jobs that run, on this machine alone
	$(PY) -m tests.standalone.demo

demo-cluster: install ## The same on a cluster: to a run in `kubectl get runs -w`
	$(PY) -m tests.e2e.demo

kills: install ## Kill all of `clockhand dev` under load, N times (N=20), and check what became of every job
	$(PY) -m tests.standalone.kills --times $(N)
