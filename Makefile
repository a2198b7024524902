# The one task runner. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := tf-2.21-cpu
# The versions that developers and continuous integration install, so that no release of another project stops them.
CONSTRAINTS := .ci/constraints.txt
# One worker more than processors, because tests with an engine often wait: for the disk, the network, the engine.
WORKERS ?= $(shell expr $$(nproc) + 1)
# Long groups of tests begin first (tests/conftest.py); the folder of a test that passed is removed at once, to save disk.
SPREAD = -n $(WORKERS) --dist loadgroup --no-loadscope-reorder -o tmp_path_retention_policy=failed
# The tests use a container engine that answers. If none answers, a private engine is started for the run and stopped after it.
SUITES := $(wildcard $(addprefix tests/,unit cases golden contract smoke integration))

.DEFAULT_GOAL := help
.PHONY: help setup demo check test prove lint format docs dist bench clean machine judges check-generated constraints
export YES

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.installed-dev ## Install what developing needs: packages of this machine (asks before sudo; YES=1 answers), tools in .venv

demo: $(VENV)/.installed ## From a bare machine to a tested image: a current framework, trained on 1 and 2 workers
	@$(BIN)/envbuild make $(DEMO) --start-engine

check: lint ## The quick part of `make test`: no root, no engine, no network, a few minutes
	@$(BIN)/pytest -q -n auto -m "not prove and not engine and not network" tests/unit tests/cases tests/golden tests/contract $(ARGS)

test: $(VENV)/.installed-dev machine ## Everything a change must pass, real builds included (60 minutes at most on 2 cores)
	@$(MAKE) --no-print-directory lint
	@ENVBUILD_REQUIRE_ENGINE=1 $(BIN)/pytest -q $(SPREAD) --durations=25 -m "not prove" $(SUITES) $(ARGS)

prove: $(VENV)/.installed-dev judges ## What takes longer than `make test`: the long tests, then all that committed environments lack in evidence (hours; resumable)
	@ENVBUILD_REQUIRE_ENGINE=1 ENVBUILD_REQUIRE_JUDGES=1 ENVBUILD_FUZZ_TIMES=$${ENVBUILD_FUZZ_TIMES:-1} $(BIN)/pytest $(SUITES) $(ARGS)
	@$(BIN)/python benchmarks/detection.py --install numpy,pytorch,tensorflow,jax --write
	@$${ENVBUILD_HOME:-$$HOME/.cache/envbuild}/detection/numpy/bin/python benchmarks/naming.py --runs 300 --batch 16 --jobs 2 --write
	@$(BIN)/envbuild evidence --all --prove --record --start-engine

lint: $(VENV)/.installed-dev ## Style, types, layers, and the guest's language level
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/vermin --quiet --no-tips -t=2.7- -t=3.5- --violations envbuild/smoke images/overlay images/recipes/*/smoke.py
	@$(BIN)/actionlint -shellcheck $(BIN)/shellcheck
	@$(BIN)/shellcheck --enable=all envbuild/smoke/*.sh images/overlay/*.sh images/partials/*.sh images/launchers/*.sh

format: $(VENV)/.installed-dev ## Let the formatter have its way
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

check-generated: $(VENV)/.installed ## Compare the committed environments with what their locks render to
	@$(BIN)/envbuild render --all --check

docs: $(VENV)/.installed-dev ## Write docs/reference/ from the program, and the numbers of README from the evidence
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/numbers.py

constraints: $(VENV)/.installed-dev ## Write the newest versions (14 days old) that fit pyproject.toml into .ci/constraints.txt (then: make test)
	@$(BIN)/uv pip compile -q --upgrade --exclude-newer "14 days" --universal --python-version 3.11 --no-annotate --no-emit-package pip --extra dev \
	  --custom-compile-command "make constraints" pyproject.toml -o $(CONSTRAINTS)

dist: $(VENV)/.installed-dev ## Build the source archive and the wheel, and try the wheel in an empty virtual environment
	@$(BIN)/python .ci/dist

bench: $(VENV)/.installed-dev ## Cold start against its budget, and every name in one process
	@$(BIN)/python benchmarks/cold_start.py
	@$(BIN)/python benchmarks/every_name.py

clean: ## Stop the private engine; remove the virtual environment and caches of this checkout
	@test ! -x $(BIN)/envbuild || $(BIN)/envbuild engine down
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

machine:
	@PYTHON="$(PYTHON)" .ci/machine tests

judges:
	@PYTHON="$(PYTHON)" .ci/machine tests judges

$(VENV)/.installed: pyproject.toml
	@PYTHON="$(PYTHON)" .ci/machine
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing envbuild into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q envbuild
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(CONSTRAINTS)
	@PYTHON="$(PYTHON)" .ci/machine
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing envbuild and its developer tools into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	@$(BIN)/python -m compileall -q envbuild
	@touch $@ $(VENV)/.installed
