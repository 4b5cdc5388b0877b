# Every target makes .venv and installs what it needs. `make help` lists them.
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
ifeq ($(VERSION),)
$(error $(PYTHON) does not run. Install it, or name another: make test PYTHON=/path/to/python3.13)
endif
BIN := .venv/bin
INTERPRETER := .venv/.python-$(VERSION)
STAMP := .venv/.installed-$(VERSION)
CORE := .venv/.core-$(VERSION)
BENCH := .venv/.bench-$(VERSION)
CLIENTS := tests/e2e/clients/node_modules/.installed
COPILOTKIT := tests/e2e/clients/copilotkit/node_modules/.installed
WEB := web/node_modules/.installed
BROWSER := tests/pages/node_modules/.installed
COPILOTKIT_PAGE := examples/copilotkit-react/node_modules/.installed
PAGES := examples/react/node_modules/.installed examples/svelte/node_modules/.installed
ADAPTERS := .venv-adapters/.installed-$(VERSION)
MINUTES ?= 10
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

.PHONY: help run test test-fast test-all test-versions test-migrate test-agents test-copilotkit record-agents coverage fuzz faults soak reliability check format shape features bench bench-quick clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(CORE) ## Start the demo agent on http://127.0.0.1:8000 (AMBIENT_PORT=8001 for another port)
	$(BIN)/ambient serve demo

test: $(STAMP) $(CLIENTS) $(COPILOTKIT) $(WEB) ## Lint, types and all tests (short form of the slow ones; PYTHON=python3.13 for another Python)
	@$(BIN)/python --version
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(PYTEST)

test-fast: $(STAMP) ## The tests that need no Node and start no processes, in less than a minute
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --fast

test-all: $(STAMP) $(CLIENTS) $(COPILOTKIT) $(WEB) $(ADAPTERS) ## All tests, slow ones in their long form, published adapters included
	$(PYTEST) --long

test-versions: $(STAMP) $(CLIENTS) ## The bridges' tests with the lowest and the newest version of each SDK; writes docs/reference/versions.md
	$(BIN)/python -m tests.versions --workers $(WORKERS)

test-migrate: $(STAMP) ## Examples of the published packages with only the import changed; writes the table of docs/how-to/migrate.md
	$(BIN)/python -m tests.migrate

test-agents: $(STAMP) $(CLIENTS) ## The four real command-line agents with a scripted model (1.3 GB in .agents; AGENTS=codex,gemini for some, SHORT=1 for one)
	$(BIN)/python -m tests.agents $(if $(AGENTS),--agents $(AGENTS)) $(if $(SHORT),--short)

test-copilotkit: $(CORE) $(BROWSER) $(COPILOTKIT_PAGE) $(PAGES) ## The pages of examples/ in Chromium, on a real server (900 MB with the browser; the install takes two minutes)
	@if command -v npm >/dev/null; then cd tests/pages && node --test --test-concurrency=1 --test-reporter=spec *.test.mjs; \
	else echo "npm not found: the pages of examples/ are not tried"; fi

record-agents: $(STAMP) $(CLIENTS) ## Record the four real command-line agents again; writes tests/recordings/acp
	$(BIN)/python -m tests.agents.record

coverage: $(STAMP) $(CLIENTS) ## Branch coverage of the in-process tests; fails below the floor in pyproject.toml
	$(PYTEST) --ignore=tests/e2e --cov --cov-report=term:skip-covered --cov-report=html:.coverage-html

fuzz: $(STAMP) ## Search at random for MINUTES minutes for examples that fail the property tests
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --workers $(WORKERS)

faults: $(STAMP) ## The fault suite in its long form: hundreds of kills, 10,000 idle streams (short form: `make test`)
	$(BIN)/python -m pytest tests/faults tests/soak -v --long --timeout 3600

soak: $(STAMP) ## Three servers and a random fault every few seconds, for MINUTES minutes (SEED=7 repeats the faults, WRITE=1 writes docs/reliability.md)
	$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(WRITE),--write)

reliability: $(STAMP) ## Joins and a kill beside the peers (PEER_PYTHON=python3.12 for a Python they need); writes docs/reliability.md
	$(BIN)/python -m tests.reliability $(if $(PEER_PYTHON),--python $(PEER_PYTHON))

check: $(STAMP) ## Lint, formatting and types only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

shape: $(STAMP) ## Figures about names and docstrings (BASE=revision to compare with)
	$(BIN)/python tests/shape.py $(if $(BASE),--base $(BASE))

features: $(STAMP) $(CLIENTS) ## Try the pages of the AG-UI dojo with every framework; writes docs/agents/features.md
	$(BIN)/python -m pytest tests/dojo --write-features

bench: $(BENCH) $(WEB) ## Measure side by side with the usual ways; writes docs/benchmarks.md after most of an hour (SCENES="growth pauses" for some, which writes nothing)
	$(BIN)/python -m benchmarks $(SCENES)

bench-quick: $(STAMP) ## First figures in two minutes: the scenes that change most, few rounds; writes nothing
	$(BIN)/python -m benchmarks --daily

clean: ## Remove everything the targets made
	rm -rf .agents .venv .venv-adapters .venv-versions .venv-migrate .venv-strands .venv-adk .venv-langgraph tests/e2e/clients/node_modules tests/e2e/clients/copilotkit/node_modules web/node_modules web/packages/*/dist tests/pages/node_modules examples/*/node_modules examples/*/dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage-html

# One environment for one interpreter: with another PYTHON it is made again.
$(INTERPRETER):
	@if [ "$$($(BIN)/python -c 'import platform; print(platform.python_version())' 2>/dev/null)" != "$(VERSION)" ]; then \
		echo "Making .venv with Python $(VERSION)"; $(PYTHON) -m venv --clear .venv || exit 1; \
	fi
	@rm -f .venv/.python-* && touch $@

# What the demo needs and no more: the frameworks and tools of the tests take a minute to install.
$(CORE): pyproject.toml constraints.txt | $(INTERPRETER)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(STAMP): $(CORE) requirements-dev.txt
	@echo "Installing the frameworks and the test tools into .venv; the first time this takes one to two minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]' -r requirements-dev.txt
	@touch $@

$(BENCH): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt sse-starlette psutil agent-client-protocol
	@for sdk in strands adk langgraph; do \
		echo "Making .venv-$$sdk for the published adapter"; \
		$(PYTHON) -m venv --clear .venv-$$sdk && \
		.venv-$$sdk/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r benchmarks/sdk/$$sdk.txt || exit 1; \
	done
	@touch $@

# The published AG-UI adapters, with this package and nothing else of ours.
$(ADAPTERS): pyproject.toml constraints.txt tests/adapters/requirements.txt
	$(PYTHON) -m venv --clear .venv-adapters
	.venv-adapters/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . -r tests/adapters/requirements.txt
	@touch $@

$(CLIENTS) $(COPILOTKIT): %/node_modules/.installed: %/package.json
	@if command -v npm >/dev/null; then cd $* && npm install --no-audit --no-fund --no-package-lock --loglevel=error; \
	else echo "npm not found: the tests with the clients in $* will be skipped"; mkdir -p $*/node_modules; fi
	@touch $@

# With the versions and hashes of the lock file. The tests build the packages.
$(WEB): web/package-lock.json
	@if command -v npm >/dev/null; then cd web && npm ci --loglevel=error; \
	else echo "npm not found: the tests of the web packages will be skipped"; mkdir -p web/node_modules; fi
	@touch $@

# Without npm nothing is installed here, and the target that needs it says so.
$(BROWSER) $(COPILOTKIT_PAGE): %/node_modules/.installed: %/package.json
	@if command -v npm >/dev/null; then cd $* && npm install --loglevel=error && touch node_modules/.installed; fi

# The packages are copied, so they are built before and copied again when they change.
$(PAGES): %/node_modules/.installed: %/package.json $(WEB) $(wildcard web/packages/*/package.json web/packages/*/src/*.ts)
	@if command -v npm >/dev/null; then npm run build --prefix web --loglevel=error && cd $* && rm -rf node_modules && \
		npm install --loglevel=error && touch node_modules/.installed; fi
