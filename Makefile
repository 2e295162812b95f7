# All tasks of people and CI. Needs a POSIX shell, make, and Python 3.11 or newer with venv.
# PYTHON=/path/to/python selects the interpreter of .venv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-long test-bridges bench-bridges chaos style lint bench promtool docs picture lock \
    clean FORCE

VENV := .venv
PY := $(VENV)/bin/python
PYTHONS := $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)
PIP := $(PY) -m pip --disable-pip-version-check --no-input
HASHED := --require-hashes --no-deps
PROMTOOL := github.com/prometheus/prometheus/cmd/promtool@v0.305.0
# Two stamp files. The first: .venv has exactly the packages of the lock.
LOCKED := $(VENV)/.locked
# The second: our own two packages are installed in .venv, from this folder.
READY := $(VENV)/.ready

help:
	@echo 'Targets:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## create .venv from the lock, again when the lock or pyproject.toml has changed
	@echo 'Ready: $(VENV)/bin/frameledger --help'

demo: $(READY) ## a conversation with a model and functions on real servers, in under a minute
	@$(VENV)/bin/frameledger demo

test: style ## everything that CI runs: setup, style, types, bridges, and all tests except the long ones
	@$(PY) -m tests.whole

test-long: style ## the same with the long tests, for example a kill at each step; run before a release
	@$(PY) -m tests.whole --long

test-bridges: $(READY) ## the bridges with the real frameworks, newest and oldest release, in environments of their own
	@$(PY) -m tests.bridges

chaos: $(READY) ## twenty thousand simulated conversations, a thousand examples of each law, faults on real servers (CHAOS_ROUNDS=30, CHAOS_SEED), a million frames
	@$(PY) -m tests.laws.simulation 0 20000
	@$(PY) -m pytest -q tests/laws --hypothesis-profile=chaos
	@$(PY) -m pytest -q tests/unit -m hypothesis --hypothesis-profile=chaos
	@$(PY) -m pytest -s tests/chaos/projectors.py tests/chaos/calls.py tests/chaos/kills.py \
		tests/chaos/failover.py tests/chaos/topics.py tests/chaos/gateway.py tests/chaos/commands.py \
		tests/chaos/rebuilds.py tests/chaos/large.py
	@BRIDGE_KILLS=all $(PY) -m tests.bridges --if-installable --only newest

style: $(READY)
	@$(PY) -m ruff check --quiet --output-format concise .
	@$(PY) -m ruff format --check --quiet . || { echo 'Not formatted: see ruff format --diff' >&2; exit 1; }

lint: style ## style and types only
	@$(PY) -m mypy

bench: $(READY) ## all benchmarks with their yardsticks; half an hour
	@$(PY) -m pytest -q tests/bench/answers.py tests/bench/road.py
	@missed=0; for part in core road inference functions audit gateway telemetry; do $(VENV)/bin/frameledger bench $$part || missed=$$?; done; \
	for part in page facts; do $(PY) -m tests.bench.$$part || missed=$$?; done; exit $$missed

promtool: ## build Prometheus' promtool as build/promtool, with Go; the tests of the alerts use it
	@mkdir -p build/promtool-module
	@cd build/promtool-module && { [ -e go.mod ] || go mod init promtool; } && \
	    go get $(PROMTOOL) && go build -o ../promtool $(firstword $(subst @, ,$(PROMTOOL)))
	@echo 'Ready: build/promtool'

bench-bridges: $(READY) ## the overhead of the bridges: the frameworks with and without them
	@$(PY) -m tests.bridges bench

docs: $(READY) ## the documentation as a site, in build/site; dead links and pages without a menu entry are errors
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict --config-file infra/mkdocs.yml
	@echo 'Ready: build/site/index.html'

picture: $(READY) ## record the demo as infra/docs/demo.svg, and the page as infra/docs/page-*.png
	@$(PY) infra/docs/record.py
	@$(PY) -m tests.browser.pictures

lock: $(READY) ## update requirements.lock to the newest versions that pyproject.toml allows
	@$(PY) -m uv pip compile --quiet --universal --upgrade --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links --extra all --group dev --output-file requirements.lock pyproject.toml
	@$(PY) -m tests.bridges lock

clean: ## remove .venv and every cache
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find events services tests migrations -name __pycache__ -type d -prune -exec rm -rf {} +

# An interpreter is used if it runs and can create environments: version managers put names on the path that do not
# run, and some distributions package venv separately. An environment whose interpreter is gone is created again.
$(LOCKED): requirements.lock $(shell $(PY) -c '' 2>/dev/null || echo FORCE)
	@found=; old=; bare=; \
	for python in $(PYTHONS); do \
	    "$$python" -c '' >/dev/null 2>&1 || continue; \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { old=$$python; continue; }; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare=$$python; continue; }; \
	    found=$$python; break; \
	done; \
	if [ -z "$$found" ]; then \
	    echo 'Frameledger needs Python 3.11 or newer with venv. Tried: $(PYTHONS)' >&2; \
	    [ -z "$$old" ] || echo "  $$old is $$("$$old" -V 2>&1), which is too old" >&2; \
	    [ -z "$$bare" ] || echo "  $$bare has no venv; Debian and Ubuntu keep it in the package python3-venv" >&2; \
	    echo '  Another one: make setup PYTHON=/path/to/python' >&2; \
	    exit 1; \
	fi; \
	echo "Creating $(VENV) with $$found ($$("$$found" -V)) from requirements.lock"; \
	rm -rf $(VENV) && "$$found" -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.txt
	@[ -t 2 ] || { quiet=--quiet; echo "  fetching and installing $$(grep -c '^[a-zA-Z0-9]' requirements.lock) packages"; }; \
	export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(PIP) config get global.index-url 2>/dev/null)}}"; \
	export UV_FIND_LINKS="$${UV_FIND_LINKS:-$$PIP_FIND_LINKS}"; \
	{ $(PIP) --quiet install $(HASHED) -r $(VENV)/uv.txt && \
	    $(PY) -m uv pip install $$quiet $(HASHED) --python $(PY) -r requirements.lock; } || { \
	    echo '  uv could not install them. Trying pip, which has more settings'; \
	    $(PIP) install --progress-bar off $(HASHED) -r requirements.lock; }
	@touch $@

$(READY): $(LOCKED) pyproject.toml
	@echo 'Installing frameledger itself, from this folder'
	@$(PIP) --quiet install --no-deps --no-build-isolation --editable '.[all]'
	@touch $@

FORCE:
