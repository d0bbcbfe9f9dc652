# Everything works from a fresh clone: each target sets up .venv by itself, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint types docs clean

demo: $(READY)
	$(BIN)/koopax demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

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

clean:
	rm -rf $(VENV) site .pytest_cache .ruff_cache .hypothesis

# The stamp is newer than pyproject.toml, so a second run installs nothing.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "koopax needs Python 3.11 or newer; set PYTHON=python3.x" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)
