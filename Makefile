# Everything works from a fresh clone: each target sets up .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint types docs storm fuzz load versions upgrade clean

demo: $(READY)
	$(BIN)/koopax demo

# In two parts: after some thousand compilations in one process, XLA's compiler is no longer to be trusted.
FIRST_PART := $(addprefix tests/,agents bench cli collection data docs envs evaluation examples experiments)
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(FIRST_PART)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix --ignore=,$(FIRST_PART))

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/pyright

# The variable silences the theme's advertisement.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What is promised in docs/reliability.md, at full size: half an hour or more each, but for `load`.
storm fuzz load versions: export PYTHONPATH := src:tests/reliability
storm: $(READY)
	$(BIN)/python tests/reliability/storm.py --rounds 30 --out results/reliability/storm.json

fuzz: $(READY)
	$(BIN)/python tests/reliability/fuzz.py --inputs 100000 --guided 5000 --out results/reliability/fuzz.json

load: $(READY)
	$(BIN)/python tests/reliability/load.py --rollouts 100000 --out results/reliability/load.json

versions: $(READY)
	$(BIN)/python tests/reliability/versions.py --out results/reliability/versions.json

# The newest of everything, kept in constraints.txt; then `.ci/run` says whether it can stay.
upgrade: $(READY)
	$(BIN)/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[dev]'
	{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	touch $(READY)

clean:
	rm -rf $(VENV) site .pytest_cache .ruff_cache .hypothesis

# The stamp is newer than both files, so a second run installs nothing.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "koopax needs Python 3.11 or newer; set PYTHON=python3.x" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
