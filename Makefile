# Bare `make` lists the targets.
#
#   make test PYTHON=python3.13 VENV=build/venv313     another Python, in a virtual environment of its own

PYTHON ?= python3
VENV ?= .venv
DEMO ?= build/demo
BENCH ?= build/bench
FUZZ ?= build/fuzz
OLDEST ?= build/oldest
PYTHONS ?= python3.10 python3.11 python3.12 python3.13

PINS := requirements/pins.txt
BIN := $(VENV)/bin
# pip compiles all modules on one core, which takes as long as the rest of its work: all cores do that afterwards. As with pip,
# a file that is no Python of this version stays as it is.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(PINS) --editable
COMPILE = $(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
PYTEST := $(BIN)/python -m pytest --durations=25
# A process for each core; one that has nothing left takes over tests of another, so a file's fixtures are seldom made twice.
PARALLEL := -n auto --dist worksteal
PROFILE := configs/resnet18.yaml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-slow test-often test-bounds test-pythons test-gpu axe bench hostile torture fuzz mutants sbom lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed-demo $(DEMO)/resnet18.onnx ## build a TensorRT engine from a PyTorch ResNet-18, inspect and compare it
	$(BIN)/trtnorm build $(DEMO)/resnet18.onnx --profile $(PROFILE) -o $(DEMO)/resnet18.engine
	$(BIN)/trtnorm inspect $(DEMO)/resnet18.onnx
	$(BIN)/trtnorm inspect $(DEMO)/resnet18.engine
	$(BIN)/trtnorm compare $(DEMO)/resnet18.onnx --profile $(PROFILE) --in-between 0 --budget 15

test: $(VENV)/.installed-dev ## run the tests on every core; what is skipped is listed with its reason
	@# As pip does with what it installs: where Python may not write bytecode, each command of a test compiles all modules anew.
	@$(BIN)/python -m compileall -q trtnorm_cli
	$(PYTEST) $(PARALLEL) --extras-required

test-slow: $(VENV)/.installed-dev ## run all tests, the slow ones too
	SLOW=1 $(PYTEST) $(PARALLEL) --extras-required

test-often: $(VENV)/.installed-dev ## run the tests twenty times, busy, without a network and so on; takes hours; goes on where it was stopped
	-$(BIN)/python -m benchmarks.suite_runs run docs/suite_runs.json
	$(BIN)/python -m benchmarks.suite_runs page docs/suite_runs.json docs/suite_runs.md

test-bounds: $(OLDEST)/.installed ## run the tests with the oldest versions that pyproject.toml allows, without PyTorch
	$(OLDEST)/bin/python -m pytest $(PARALLEL)

test-pythons: ## run the tests with each of PYTHONS, in a virtual environment for each
	set -e; for python in $(PYTHONS); do $(MAKE) test PYTHON=$$python VENV=build/venv-$$python; done

test-gpu: $(VENV)/.installed-dev ## run the tests that need an NVIDIA GPU; fails where there is none
	$(PYTEST) --gpu-required -m gpu

axe: $(VENV)/.installed-dev ## look for what keeps people from using the report, with axe-core; needs npm and Chromium
	npm install --silent --no-fund --no-audit --prefix build/axe axe-core@4
	SLOW=1 $(BIN)/python -m pytest --extras-required -m browser

bench: $(VENV)/.installed-dev ## measure time and memory beside other tools, and write docs/performance.md; takes hours
	$(BIN)/python -m benchmarks.speed measure -o $(BENCH)/speed.json
	$(BIN)/python -m benchmarks.speed page $(BENCH)/speed.json docs/performance.md
	$(BENCH)/peers/bin/python benchmarks/speed_picture.py $(BENCH)/speed.json docs/performance.svg

hostile: $(VENV)/.installed-dev ## run every command on files made to exhaust, mislead or crash it; takes an hour
	mkdir -p $(BENCH)
	$(BIN)/python -m benchmarks.hostile_files run -o $(BENCH)/hostile.json
	$(BIN)/python -m benchmarks.hostile_files page $(BENCH)/hostile.json docs/hostile_files.md

torture: $(VENV)/.installed-dev $(DEMO)/resnet18.onnx ## kill, starve and interrupt builds, and write docs/faults.md; takes half an hour
	$(BIN)/python -m benchmarks.torture $(DEMO)/resnet18.onnx $(PROFILE) -o build/torture -p docs/faults.md

fuzz: $(VENV)/.installed-dev $(FUZZ)/venv/.installed ## random models, mutated ones and bytes for four hours, and docs/fuzzing.md
	$(BIN)/python -m benchmarks.fuzz_graphs run --seconds 7200 -o $(FUZZ)
	-$(BIN)/python -m benchmarks.fuzz_models --seconds 3600 -o $(FUZZ)/mutated.json
	-$(FUZZ)/venv/bin/python -m benchmarks.fuzz_bytes yaml --seconds 1800 -o $(FUZZ)
	-$(FUZZ)/venv/bin/python -m benchmarks.fuzz_bytes onnx --seconds 1800 -o $(FUZZ)
	$(BIN)/python -m benchmarks.fuzz_graphs page $(FUZZ) docs/fuzzing.md

mutants: $(VENV)/.installed-dev $(FUZZ)/venv/.installed ## change the program in small ways, and write docs/mutation.md; takes hours
	rm -rf build/lines
	$(FUZZ)/venv/bin/python -m pytest -q -p benchmarks.lines_of_tests --lines build/lines $(PARALLEL) tests
	cd build/lines && ../../$(FUZZ)/venv/bin/python -m coverage combine -q --keep && \
		../../$(FUZZ)/venv/bin/python -m coverage json -q -o branches.json.txt
	$(BIN)/python -m benchmarks.mutants run build/lines -o build/draw.json
	$(BIN)/python -m benchmarks.mutants page build/draw.json docs/mutation.md --branches build/lines/branches.json.txt

sbom: build/sbom/.installed ## write build/sbom.cdx.json (CycloneDX) and docs/licences.md
	build/sbom/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json
	$(BIN)/python -m benchmarks.licences build/sbom.cdx.json docs/licences.md

lint: $(VENV)/.installed-dev ## ruff (rules and formatting) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove what the other targets made, the virtual environment too
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find trtnorm_cli tests samples -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second run start at once; they age when the dependencies or their pins change.
$(VENV)/.installed-demo: pyproject.toml $(PINS)
	@echo "installing into $(VENV); the first time this downloads PyTorch and TensorRT"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[rtx,torch]'
	@$(COMPILE)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(PINS)
	@echo "installing into $(VENV); the first time this downloads PyTorch and TensorRT"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[batch,dev,report,rtx,torch]'
	@$(COMPILE)
	@touch $@

# NumPy 1.26 has wheels up to Python 3.12.
$(OLDEST)/.installed: pyproject.toml requirements/oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements/oldest.txt --editable \
		'.[batch,report,rtx,weights]' hypothesis jsonschema pytest pytest-timeout pytest-xdist
	@touch $@

# Atheris and coverage.py are for these targets alone, beside what is installed for the tests.
$(FUZZ)/venv/.installed: $(VENV)/.installed-dev
	$(PYTHON) -m venv $(FUZZ)/venv
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > $$($(FUZZ)/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/tests.pth
	$(FUZZ)/venv/bin/python -m pip install --quiet --disable-pip-version-check 'atheris>=3' 'coverage>=7.10'
	@touch $@

build/sbom/.installed: $(VENV)/.installed-dev
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7'
	@touch $@

$(DEMO)/resnet18.onnx: samples/resnet18_batchnorm/export.py $(PINS) | $(VENV)/.installed-demo
	$(BIN)/python $< -o $@
