# make setup    everything into .venv; demo and test do it by themselves
# make demo     train, evaluate and draw
# make test     lint and tests, as in CI
# make learn    slow checks, most of them of learning
# make torture  bad options, calls, files and environments, and kills: TORTURE_MINUTES, TORTURE=cli
# make storm    a run killed a hundred times against an unbroken one
# make soak     the memory of two runs over SOAK_MINUTES
# make docs     the documentation as a site, build/site; a broken link fails
# make release  build, check and install the package
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := pip install -q --disable-pip-version-check
TORCH := $$(grep '^torch==' constraints.txt)
DEMO_ENV := MiniGrid-DoorKey-8x8-v0
DEMO_DIR := runs/demo
RELEASE := build/release
TORTURE_MINUTES ?= 15
TORTURE ?=  # families, all if empty: cli library damage envs kills
SOAK_MINUTES ?= 30
GL := libegl1 libgl1-mesa-dri libglu1-mesa
APT := apt-get -qq -o DPkg::Lock::Timeout=120

.PHONY: setup demo test learn torture storm soak bench lint docs release clean .chromium

setup: $(STAMP) .gl

# MiniWorld draws with OpenGL. Where we may not install it, everything else still works.
.PHONY: .gl
.gl: $(STAMP)
	@$(BIN)/python -c 'from ctypes.util import find_library as f; import sys; sys.exit(not (f("EGL") and f("GLU")))' || \
	if [ "$$(id -u)" = 0 ]; then ($(APT) install -y $(GL) || { $(APT) update && $(APT) install -y $(GL); }) > /dev/null; \
	elif sudo -n true 2> /dev/null; then (sudo $(APT) install -y $(GL) || { sudo $(APT) update && sudo $(APT) install -y $(GL); }) > /dev/null; \
	else false; fi || echo "MiniWorld needs OpenGL: apt-get install $(GL). Everything else works without."

# torch first and pinned: an open range would pull gigabytes of CUDA on a machine that has none.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "surprise-memory needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) $(TORCH)
	$(BIN)/$(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: setup
	rm -rf $(DEMO_DIR)
	$(BIN)/surprise-memory train $(DEMO_ENV) --steps 600k --run-dir $(DEMO_DIR)
	$(BIN)/surprise-memory eval $(DEMO_DIR)
	$(BIN)/surprise-memory show $(DEMO_DIR)

# The report's page is looked at in a browser, where we may install one.
.chromium:
	@command -v chromium > /dev/null || \
	if [ "$$(id -u)" = 0 ]; then ($(APT) install -y chromium || { $(APT) update && $(APT) install -y chromium; }) > /dev/null; \
	else false; fi || echo "The test of the report's page is skipped: apt-get install chromium."

test: setup lint .chromium
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'not slow'

learn: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m slow

torture: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture $(TORTURE) --minutes $(TORTURE_MINUTES)

storm: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture.storm

soak: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture.soak --minutes $(SOAK_MINUTES)

bench: setup
	$(BIN)/surprise-memory bench

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would hide warnings from --strict
	@echo "build/site: python3 -m http.server -d build/site"

# The wheel goes into an empty environment with core dependencies alone. -I keeps the source in this
# folder from standing in for it.
release: setup
	rm -rf $(RELEASE)
	$(BIN)/$(PIP_INSTALL) -c constraints.txt -e '.[release]'
	$(BIN)/python -m build --outdir $(RELEASE)/dist
	$(BIN)/twine check --strict $(RELEASE)/dist/*
	$(BIN)/python tests/tools/release.py files $(RELEASE)/dist
	$(PYTHON) -m venv $(RELEASE)/venv
	$(RELEASE)/venv/bin/$(PIP_INSTALL) $(TORCH)
	$(RELEASE)/venv/bin/$(PIP_INSTALL) -c constraints.txt $(RELEASE)/dist/*.whl
	$(RELEASE)/venv/bin/python -I tests/tools/release.py installed README.md

clean:
	rm -rf $(VENV) runs build *.egg-info
