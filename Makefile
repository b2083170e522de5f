PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed
DOCS_READY := .venv/.docs
INSTALL := $(BIN)/pip install -qq --disable-pip-version-check
# LOCKED=1 installs by hash where requirements.lock fits, as CI does, else by version and says so.
LOCKED ?=
FITS := import platform as p, sys; \
	sys.exit((*sys.version_info[:2], p.system(), p.machine()) != (3, 11, "Linux", "x86_64"))

HASHED := --no-deps --require-hashes --only-binary :all:
WHEEL := .venv/torch
# pip chooses the build of torch as ever, and installs it if its hash is known. One for CUDA needs
# libraries of NVIDIA's, of which only torch knows the versions.
BY_HASH = { $(INSTALL) $(HASHED) -r requirements.lock && \
	$(BIN)/pip download -qq --no-deps -d $(WHEEL) -c constraints.txt torch && \
	$(INSTALL) $(HASHED) --no-index --find-links $(WHEEL) -r torch.lock && rm -r $(WHEEL) && \
	{ $(BIN)/pip check > /dev/null || { echo "torch's own libraries: by version, not by hash" >&2; \
	$(INSTALL) -c constraints.txt torch; }; } && \
	$(INSTALL) --no-deps --no-build-isolation -e .; } || { \
	echo "Nothing is taken in its place. To install by version: make LOCKED= $(MAKECMDGOALS)" >&2; \
	exit 1; }

# Each test worker computes on one thread: workers that share cores slow one another down. Bytecode
# is written whatever the environment says: the processes that tests start need not compile again.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
# More than four workers cost more in imports of torch than they win. One that is done takes over
# tests of another.
PARALLEL := -n auto --maxprocesses 4 --dist worksteal

.PHONY: help demo test test-all fast check lint types docs coverage sbom clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

demo: $(READY)  ## find a unit for an embedded text and compare it, in under five minutes
	@$(BIN)/metarnn learn pydoc --minutes 4

test: $(READY)  ## all tests but those that take minutes
	@$(PYTEST) $(PARALLEL) -m "not slow"

test-all: $(READY)  ## every test
	@$(PYTEST) $(PARALLEL)

fast: $(READY)  ## only the tests that take no time
	@$(PYTEST) $(PARALLEL) -m "not slow and not medium"

check: $(READY)  ## what to run before a commit: lint, types, fast tests, all at once
	@$(MAKE) --no-print-directory -j 3 lint types fast

lint: $(READY)  ## style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(READY)  ## type checking
	@$(BIN)/pyright

docs: $(DOCS_READY)  ## the documentation as a site, in build/docs
	@$(BIN)/sphinx-build -W --keep-going -E -a -b html docs build/docs
	@echo "Look at build/docs/index.html"

coverage: $(READY)  ## all tests but those that take minutes, and the lines that none of them runs
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt pytest-cov
	@$(PYTEST) $(PARALLEL) -m "not slow" --cov=metarnn --cov-report=term-missing:skip-covered

sbom: $(READY)  ## sbom.json: what is installed beside this package, as CycloneDX
	@$(BIN)/python tools/sbom.py > sbom.json

clean:  ## remove the environment, caches and builds; runs/ and data/ stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist
	find src tests examples -type d -name __pycache__ -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "metarnn needs Python 3.11 or newer, but $(PYTHON) is" \
			"$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Installing metarnn and its tools into .venv (about a minute, once) ..."
	@$(PYTHON) -m venv .venv
	@if [ -z "$(LOCKED)" ]; then $(INSTALL) -c constraints.txt -e '.[dev]'; \
	elif $(PYTHON) -c '$(FITS)'; then $(BY_HASH); \
	else echo "By version, not by hash: requirements.lock is for Python 3.11 on Linux and x86-64" >&2; \
		$(INSTALL) -c constraints.txt -e '.[dev]'; fi
	@touch $@

# Apart from the rest: nobody needs Sphinx to run the tests.
$(DOCS_READY): $(READY)
	@echo "Installing Sphinx into .venv (half a minute, once) ..."
	@$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
