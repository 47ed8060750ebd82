# Bare `make` lists the targets.
#
#   make test PYTHON=python3.13 VENV=build/venv313     another Python, in a virtual environment of its own

PYTHON ?= python3
VENV ?= .venv
DEMO ?= build/demo
BENCH ?= build/bench

PINS := requirements/pins.txt
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable
PYTEST := $(BIN)/python -m pytest --durations=25
# A process for each core; one that has nothing left takes over tests of another, so a file's fixtures are seldom made twice.
PARALLEL := -n auto --dist worksteal
PROFILE := configs/resnet18.yaml

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-slow test-gpu axe bench hostile torture lint clean fuzz

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed-demo $(DEMO)/resnet18.onnx ## build a TensorRT engine from a PyTorch ResNet-18, inspect and compare it
	$(BIN)/trtnorm build $(DEMO)/resnet18.onnx --profile $(PROFILE) -o $(DEMO)/resnet18.engine
	$(BIN)/trtnorm inspect $(DEMO)/resnet18.onnx
	$(BIN)/trtnorm inspect $(DEMO)/resnet18.engine
	$(BIN)/trtnorm compare $(DEMO)/resnet18.onnx --profile $(PROFILE) --in-between 0 --budget 15

test: $(VENV)/.installed-dev ## run the tests on every core; what is skipped is listed with its reason
	$(PYTEST) $(PARALLEL) --extras-required

test-slow: $(VENV)/.installed-dev ## run all tests, the slow ones too
	SLOW=1 $(PYTEST) $(PARALLEL) --extras-required

test-gpu: $(VENV)/.installed-dev ## run the tests that need an NVIDIA GPU; fails where there is none
	$(PYTEST) --gpu-required -m gpu

axe: $(VENV)/.installed-dev ## look for what keeps people from using the report, with axe-core; needs npm and Chromium
	npm install --silent --no-fund --no-audit --prefix build/axe axe-core@4
	$(BIN)/python -m pytest --extras-required -m browser

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
fuzz: $(VENV)/.installed-dev ## mutate models for two hours, and print what ends in no clear error
	$(BIN)/python -m benchmarks.fuzz_models --seconds 7200

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
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(PINS)
	@echo "installing into $(VENV); the first time this downloads PyTorch and TensorRT"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[batch,dev,report,rtx,torch]'
	@touch $@

$(DEMO)/resnet18.onnx: samples/resnet18_batchnorm/export.py $(PINS) | $(VENV)/.installed-demo
	$(BIN)/python $< -o $@
