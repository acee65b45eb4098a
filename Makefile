# make run    set up, then the main job on data/sample
# make test   set up, then every check: ruff, mypy, pytest
# make bench  set up, then every bench: writes docs/benchmarks.json and the table of docs/benchmarks.md
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LAKE   ?= lake
SIZE   ?= 512MB
FILES  ?= 10000
RUNS   ?= 1000

.PHONY: run test bench docs screenshots sample clean

run: $(VENV)/.ready
	$(BIN)/tracelake run data/sample --lake $(LAKE)

test: $(VENV)/.ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --num-workers auto
	$(BIN)/pytest -n auto --dist worksteal

bench: $(VENV)/.ready  ## SIZE, FILES and RUNS of lakes as in docs/benchmarks.md
	$(BIN)/python -m tests.bench --size $(SIZE) --files $(FILES) --runs $(RUNS) \
	  --json docs/benchmarks.json --markdown docs/benchmarks.md

docs: $(VENV)/.ready  ## writes the generated blocks of README.md and docs/
	$(BIN)/python -m tests.docs

screenshots: $(VENV)/.ready  ## writes the pictures of docs/images that show the report; needs Chromium
	$(BIN)/python -m tests.screenshots

sample: $(VENV)/.ready  ## writes data/sample anew, byte for byte the same
	rm -rf data/sample
	$(BIN)/tracelake synth data/sample --sample

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(LAKE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
