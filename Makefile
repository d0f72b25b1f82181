# Everything here needs Python 3.11 with venv, git and make, and sets up the rest by itself.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.ready

.PHONY: dev demo test test-systemd test-agents check format lint types contracts docs bench classify-score clean

dev: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ralphd needs Python 3.11 or later; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -q ralphd ralphctl $(VENV)/lib || true
	@touch $@

demo: $(STAMP)
	@$(BIN)/ralphctl demo

test: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(BIN)/python -m pytest -n 3 --basetemp="$$scratch/t"

# A real systemd in a private namespace: as root only, and apart from `check`.
test-systemd: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 0 -rs --capture=no --basetemp="$$scratch/t" tests/systemd/under_systemd.py

# The real agent CLIs, from npm, against a mock of their vendors on loopback; apart from `check`.
test-agents: $(STAMP)
	@$(BIN)/python -m tests.agents.installed
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 2 -rs --basetemp="$$scratch/t" tests/agents/real_agents.py tests/agents/real_loops.py

check: $(STAMP) format lint types contracts test

format: $(STAMP)
	@$(BIN)/ruff format --check .

lint: $(STAMP)
	@$(BIN)/ruff check .

types: $(STAMP)
	@$(BIN)/mypy

contracts: $(STAMP)
	@$(BIN)/lint-imports

docs: $(STAMP)
	@$(BIN)/python -m tests.generated --write

# How well failures are told apart: CORPUS=FILE, else the project's own samples.
classify-score: $(STAMP)
	@$(BIN)/python -m tests.classify_score $(CORPUS)

bench: $(STAMP)
	@$(BIN)/python -m tests.bench $(ARGS)

clean:
	rm -rf $(VENV) .venv-bench .agents .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
