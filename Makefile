# Everything works in .venv; nothing is installed elsewhere.
PYTHON ?= python3
# A CPU build where the index offers one under this pin. Elsewhere the pin may bring gigabytes of CUDA: then override,
# for example  make demo TORCH="torch==2.13.0+cpu"  together with the index that carries it.
TORCH ?= torch==2.13.0
# cpu or gpu: faiss-cpu and faiss-gpu share one import name, so exactly one of them.
FAISS ?= cpu
DATA ?= ../shared/data
# Test files run side by side; a file that starts a server keeps it to itself.
WORKERS ?= auto

BIN := .venv/bin
STAMP := .venv/.installed
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE ?= 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || { rm -rf .venv; $(PYTHON) -m venv .venv 2>/dev/null; } || { \
	  echo "python3-venv is missing; trying to install it"; rm -rf .venv; \
	  { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv .venv; } || { \
	  echo "install it as root: apt-get install python3-venv" >&2; exit 1; }; }
	@echo "installing into .venv (about 2 GB with a CPU build of torch)"
	$(BIN)/pip install -q "$(TORCH)"
	$(BIN)/pip install -q -c constraints.txt -e ".[$(FAISS),dev]"
	@touch $(STAMP)

.PHONY: install
install: $(STAMP) ## create .venv and install

.PHONY: demo
demo: $(STAMP) ## two companies, their users, answers, the cache and the audit, on the screen
	$(BIN)/python -m examples.demo.run

.PHONY: serve
serve: $(STAMP) ## the REST API with the default configuration
	$(BIN)/strongroom serve

.PHONY: test
test: $(STAMP) ## the whole suite, with real servers
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile

.PHONY: test-fast
test-fast: $(STAMP) ## the suite without what takes more than seconds
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile -m "not slow"

.PHONY: test-load
test-load: $(STAMP) ## a real SGLang server under load, and restarted; takes the machine to itself
	$(BIN)/pytest -q -m load tests/generation tests/attest

.PHONY: test-milvus
test-milvus: $(STAMP) ## what needs a real Milvus server; one at a time on a machine
	@$(BIN)/python -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('milvus') is None)" || \
	  $(BIN)/pip install -q -c constraints.txt -e ".[$(FAISS),dev,milvus-server]"
	$(BIN)/pytest -q -m milvus tests/milvus
	$(BIN)/pytest -q -m milvus --ignore=tests/milvus

.PHONY: conformance
conformance: $(STAMP) ## what every vector engine does alike, as a table; with a Milvus server where there is one
	$(BIN)/python -m tests.conformance.table

.PHONY: check
check: $(STAMP) ## format, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: format
format: $(STAMP) ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: torture
torture: $(STAMP) ## 200 kill -9 during ingestion and questions, and 275 of commands that change the audit
	TORTURE_KILLS=200 $(BIN)/pytest -q -s tests/faults

.PHONY: honest
honest: $(STAMP) ## 1,000 runs of 30 honest writers in two processes, on each database: no false alarm
	HONEST_RUNS=1000 $(BIN)/pytest -q -s tests/audit/test_honest.py

.PHONY: mutations
mutations: $(STAMP) ## break each guard of isolation and see the oracle fail
	$(BIN)/python -m tests.isolation.mutate

.PHONY: bench
bench: $(STAMP) ## all benchmarks; DATA names the folder of public data
	$(BIN)/pip install -q -c constraints.txt -e ".[$(FAISS),dev,bench]"
	for name in admission audit batch_neighbours cache_speed cache_timing generation recall search tenants; do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done
	for name in path ingest guards cache_replay abstention embed_dtype retrieval_quality policies parallel_tenants; do \
	  echo "== $$name"; $(BIN)/python -m benchmarks.$$name --data $(DATA) || exit 1; done

.PHONY: clean
clean: ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
