# setup: everything into .venv   demo: train, evaluate, draw   test: what CI runs   learn: slow learning checks
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_ENV := MiniGrid-DoorKey-8x8-v0
DEMO_DIR := runs/demo
GL := libegl1 libgl1-mesa-dri libglu1-mesa
APT := apt-get -qq -o DPkg::Lock::Timeout=120

.PHONY: setup demo test learn bench lint clean .chromium

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
	$(BIN)/pip install -q --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: setup
	rm -rf $(DEMO_DIR)
	$(BIN)/surprise-memory train $(DEMO_ENV) --method rnd+sm --steps 600k --run-dir $(DEMO_DIR)
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

bench: setup
	$(BIN)/surprise-memory bench

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) runs build *.egg-info
