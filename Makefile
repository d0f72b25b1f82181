# All targets need only Python 3.11 with venv, git and make; each installs the rest.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.ready
MUTANTS_VENV ?= .venv-mutants
MUTANTS_STAMP = $(MUTANTS_VENV)/.ready
FUZZ_VENV ?= .venv-fuzz
FUZZ_STAMP = $(FUZZ_VENV)/.ready
AUDIT_VENV ?= .venv-audit
RELEASE_VENV ?= .venv-release
QUIET = --quiet --disable-pip-version-check

# `make install`: an environment of its own, so that no project sees ralphd's Python packages. EXTRAS="tui mcp", of
# those in KNOWN_EXTRAS, adds the packages of all of them; FLEET=1 is EXTRAS=fleet-hub.
KNOWN_EXTRAS = fleet fleet-hub mcp tui web
CHOSEN_EXTRAS = $(EXTRAS) $(if $(FLEET),fleet-hub)
DATA = $(or $(XDG_DATA_HOME),$(HOME)/.local/share)
CONFIG = $(or $(XDG_CONFIG_HOME),$(HOME)/.config)
OWN = $(DATA)/ralphd/venv
LINKS = $(HOME)/.local/bin
COMMANDS = ralphd ralphctl ralph

.PHONY: install uninstall test-install pictures dev demo quick test test-long test-executed test-systemd test-agents test-web check format lint types contracts docs golden bench growth classify-score mutants fuzz fuzz-contracts fuzz-parsers audit constraints release nights torture torture-agent torture-landing torture-fleet faults matrix upgrades soak clean

dev: $(STAMP)

$(STAMP): pyproject.toml tests/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ralphd needs Python 3.11 or later; try make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once)"
	@$(BIN)/python -m pip install $(QUIET) --require-hashes -r tests/constraints.txt
	@$(BIN)/python -m pip install $(QUIET) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q ralphd ralphctl $(VENV)/lib || true
	@touch $@

install:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ralphd needs Python 3.11 or later; try make install PYTHON=python3.12")'
	@$(if $(filter-out $(KNOWN_EXTRAS),$(CHOSEN_EXTRAS)),echo 'EXTRAS="$(EXTRAS)": the extras are $(KNOWN_EXTRAS)' >&2; exit 2)
	@echo "installing into $(OWN)"
	@test -x "$(OWN)/bin/python" || $(PYTHON) -m venv "$(OWN)"
	@"$(OWN)/bin/python" -m pip install $(QUIET) --require-hashes -r $(if $(strip $(CHOSEN_EXTRAS)),constraints-all.txt,constraints.txt)
	@"$(OWN)/bin/python" -m pip install $(QUIET) --no-deps .
	@mkdir -p "$(LINKS)" "$(DATA)/bash-completion/completions" "$(DATA)/zsh/site-functions" "$(CONFIG)/fish/completions"
	@for name in $(COMMANDS); do link="$(LINKS)/$$name"; there=$$(readlink "$$link"); \
	  if test "$$there" = "$(OWN)/bin/$$name" || ! test -e "$$link" -o -L "$$link"; then ln -sfn "$(OWN)/bin/$$name" "$$link"; \
	  else echo "kept $$link: it is another program. ralphd's own: $(OWN)/bin/$$name"; fi; done
	@"$(OWN)/bin/ralphctl" completion bash > "$(DATA)/bash-completion/completions/ralphctl"
	@"$(OWN)/bin/ralphctl" completion zsh > "$(DATA)/zsh/site-functions/_ralphctl"
	@"$(OWN)/bin/ralphctl" completion fish > "$(CONFIG)/fish/completions/ralphctl.fish"
	@echo "installed $$("$(OWN)/bin/ralphctl" --version); completion: new shells (zsh: docs/install.md)"
	@case ":$$PATH:" in *":$(LINKS):"*) ;; *) echo "next: add it to PATH: export PATH=\"$(LINKS):\$$PATH\"" ;; esac
	@"$(OWN)/bin/ralphctl" regent status >/dev/null 2>&1 && echo "next: ralphctl regent restart  (the runs continue)" || true

# The state directory, ralph.toml and the like stay: docs/install.md lists them.
uninstall:
	@if "$(OWN)/bin/ralphctl" regent status >/dev/null 2>&1; then \
	  echo "ralphd is running; first: ralphctl regent stop, or for a service: ralphctl regent uninstall"; exit 1; fi
	@for name in $(COMMANDS); do link="$(LINKS)/$$name"; \
	  if test "$$(readlink "$$link")" = "$(OWN)/bin/$$name"; then rm "$$link"; fi; done
	@rm -rf "$(OWN)" "$(DATA)/bash-completion/completions/ralphctl" "$(DATA)/zsh/site-functions/_ralphctl" \
	  "$(CONFIG)/fish/completions/ralphctl.fish"
	@rmdir "$(DATA)/ralphd" 2>/dev/null || true
	@echo "removed $(OWN), its links and its completion; what stays, copies of .env files included: docs/install.md"

demo: $(STAMP)
	@$(BIN)/ralphctl demo

# Two processes rewrite and cache the asserts of half of the test files each; otherwise each of the workers would
# rewrite all of them.
REWRITTEN = $(VENV)/.rewritten
REWRITTEN_FIRST = tests/core tests/whole tests/ctl
$(REWRITTEN) test: export PYTHONDONTWRITEBYTECODE =
$(REWRITTEN): $(STAMP) $(shell find tests -name '*.py')
	@$(BIN)/python -m pytest --collect-only -q $(REWRITTEN_FIRST) >/dev/null & \
	  $(BIN)/python -m pytest --collect-only -q $(addprefix --ignore=,$(REWRITTEN_FIRST)) >/dev/null; wait
	@touch $@

# The files of the tests are in memory where there are 4 GB of it and programs may run from there: an eighth less time.
IN_MEMORY = $(shell test -z "$$TMPDIR" && test -w /dev/shm && test "$$(df -k /dev/shm | awk 'END {print $$4}')" -gt 4000000 && \
  awk '/^MemAvailable/ {free = $$2} $$2 == "/dev/shm" {runs = $$4 !~ /noexec/} \
    END {if (runs && free > 4000000) print "TMPDIR=/dev/shm"}' /proc/meminfo /proc/mounts)

# One process per file, slow files first (tests/conftest.py).
test: $(REWRITTEN)
	@$(IN_MEMORY:%=export %;) scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder --basetemp="$$scratch/t"

# What `test` leaves out for the time it takes (tests/conftest.py): other tests show the same with less, or in another form.
test-long: $(STAMP)
	@$(IN_MEMORY:%=export %;) scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  LONG=only $(BIN)/python -m pytest -n 3 --dist loadfile --basetemp="$$scratch/t"

# The tests that need no daemon and no agent, in seconds: after each change. `test` before a commit.
QUICK = tests/core tests/config tests/store tests/daemon tests/agents tests/sim tests/mutants \
  tests/test_fences.py tests/test_prose.py tests/test_generated.py tests/test_requirements.py
quick: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && $(BIN)/python -m pytest -n 2 --basetemp="$$scratch/t" $(QUICK)

# The same tests, but every program starts its own interpreter instead of a fork of a loaded one.
test-executed: $(STAMP)
	@RALPHD_TESTS_EXECUTE=1 $(MAKE) --no-print-directory test

# A real systemd in a private namespace; needs root, and is not part of `check`.
test-systemd: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 0 -rs --capture=no --basetemp="$$scratch/t" tests/systemd/under_systemd.py

# The real agent CLIs, from npm and PyPI, against a mock of the vendors on loopback; not part of `check`.
test-agents: $(STAMP)
	@$(BIN)/python -m tests.agents.installed
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 3 -rs --basetemp="$$scratch/t" tests/agents/real_agents.py tests/agents/real_described.py tests/agents/real_loops.py tests/agents/real_mcp.py

# Each way to install, in an empty home, with pipx and uv from PyPI; not part of `check`.
test-install: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  $(BIN)/python -m pytest -n 0 -rs --timeout 900 --basetemp="$$scratch/t" tests/install/installed.py

# The page in a headless Chromium (Debian: chromium), with playwright from PyPI and axe-core from npm; not part of `check`.
# PICTURES=DIR also writes what each page looks like.
test-web: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	  if command -v chromium >/dev/null && command -v npm >/dev/null; then \
	    $(BIN)/python -m pip install $(QUIET) --target "$$scratch/python" playwright==1.65.2 && \
	    npm install --silent --no-audit --no-fund --prefix "$$scratch" --cache "$$scratch/cache" axe-core@4.14.1; fi && \
	  PYTHONPATH="$$scratch/python" AXE="$$scratch/node_modules/axe-core/axe.min.js" \
	    $(BIN)/python -m pytest -n 0 -rs --capture=no --basetemp="$$scratch/t" tests/browser/in_chromium.py

# mypy keeps one core busy for half a minute: meanwhile the other one prepares the tests.
check: $(STAMP) format lint contracts
	@$(MAKE) --no-print-directory types & types=$$!; $(MAKE) --no-print-directory $(REWRITTEN); \
	  wait $$types && $(MAKE) --no-print-directory test

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

# Runs a short night and draws what ralphctl prints of it: docs/pictures.
pictures: $(STAMP)
	@$(BIN)/python -m tests.pictures

# Writes what ralphctl prints now to tests/ctl/golden; TESTS=FILE for one file of tests.
golden: $(STAMP)
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest -n 0 $(or $(TESTS),tests/ctl)

# Scores the classification of failures: CORPUS=FILE, else the project's own samples.
classify-score: $(STAMP)
	@$(BIN)/python -m tests.classify_score $(CORPUS)

# Simulates nights of eight hours for the two cores, by seed (tests/sim/README.md).
nights: $(STAMP)
	@nice -n 10 $(BIN)/python -m tests.sim --seeds $(or $(NIGHTS),1-100000) $(if $(WORKERS),--workers $(WORKERS))

# Changes one expression of the decisions at a time; a test has to fail (tests/mutants/README.md).
# ONLY="FILE..." for some modules, FUNCTION=NAME for one function, WORKERS=1 for a busy machine.
mutants: $(MUTANTS_STAMP)
	@$(MUTANTS_VENV)/bin/python -m tests.mutants $(ONLY) $(if $(FUNCTION),--function $(FUNCTION)) $(if $(WORKERS),--workers $(WORKERS))

$(MUTANTS_STAMP): pyproject.toml tests/mutants/constraints.txt
	@test -x $(MUTANTS_VENV)/bin/python || $(PYTHON) -m venv $(MUTANTS_VENV)
	@echo "setting up $(MUTANTS_VENV) (once)"
	@$(MUTANTS_VENV)/bin/python -m pip install $(QUIET) --require-hashes -r tests/mutants/constraints.txt
	@$(MUTANTS_VENV)/bin/python -m pip install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $@

# sdist, wheel, list of packages (CycloneDX) and SHA256SUMS in dist/; fails if two builds differ (docs/install.md).
release: $(STAMP) $(RELEASE_VENV)/.ready
	@$(BIN)/python -m tests.release --tool $(RELEASE_VENV)/bin/cyclonedx-py

$(RELEASE_VENV)/.ready: tests/install/constraints.txt
	@test -x $(RELEASE_VENV)/bin/python || $(PYTHON) -m venv $(RELEASE_VENV)
	@$(RELEASE_VENV)/bin/python -m pip install $(QUIET) --require-hashes -r tests/install/constraints.txt
	@touch $@

# For FUZZ_S seconds (600) each: requests by the daemon's OpenAPI document, sent to a real daemon, and mutated input for
# each parser of what others write (tests/fuzz). SEED=N repeats a run, ONLY="NAME..." takes some parsers. Not in `check`.
fuzz: fuzz-contracts fuzz-parsers
fuzz-contracts fuzz-parsers: export PYTHONDONTWRITEBYTECODE = 1
fuzz-contracts fuzz-parsers: fuzz-%: $(FUZZ_STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && nice -n 19 $(FUZZ_VENV)/bin/python -m tests.fuzz $* \
	  --seconds $(or $(FUZZ_S),600) --scratch "$$scratch" $(if $(SEED),--seed $(SEED)) $(ONLY)

$(FUZZ_STAMP): pyproject.toml tests/fuzz/constraints.txt
	@test -x $(FUZZ_VENV)/bin/python || $(PYTHON) -m venv $(FUZZ_VENV)
	@echo "setting up $(FUZZ_VENV) (once)"
	@$(FUZZ_VENV)/bin/python -m pip install $(QUIET) --require-hashes -r tests/fuzz/constraints.txt
	@$(FUZZ_VENV)/bin/python -m pip install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $@

# Pins every package, by version and hash, for each environment; after a change of a dependency.
# UPGRADE=--upgrade also takes the newest versions.
constraints: $(AUDIT_VENV)/.ready
	@for each in "constraints.txt" "constraints-all.txt $(addprefix --extra ,$(KNOWN_EXTRAS))" "tests/constraints.txt --extra dev" "tests/mutants/constraints.txt --extra dev --extra mutants" "tests/install/constraints.txt --extra release" "tests/fuzz/constraints.txt --extra dev --extra fuzz"; do \
	  $(AUDIT_VENV)/bin/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-annotate --allow-unsafe \
	    --no-emit-index-url --no-emit-find-links --no-emit-trusted-host $(UPGRADE) --output-file $$each pyproject.toml || exit; done

# Compares the pinned packages with the database of known vulnerabilities; needs a network, and is not part of `check`.
audit: $(AUDIT_VENV)/.ready
	@$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes -r tests/mutants/constraints.txt -r tests/fuzz/constraints.txt || \
	  { echo "audit: not passed. Either it lists vulnerable packages above, or it found no network"; exit 1; }

$(AUDIT_VENV)/.ready:
	@$(PYTHON) -m venv $(AUDIT_VENV)
	@$(AUDIT_VENV)/bin/python -m pip install $(QUIET) pip-tools==7.6.2 pip-audit==2.10.1
	@touch $@

# With new seeds for TORTURE_S seconds (60) each, SEED=N begins at one: a hostile agent in namespaces of its own; the
# landing queue, whose daemon is killed all the time. Not part of `check`.
torture: torture-agent torture-landing torture-fleet
torture-agent: TORTURED = test_hostile_agent
torture-landing: TORTURED = test_landing_torture
torture-fleet: TORTURED = test_fleet_torture
torture-agent torture-landing torture-fleet: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && LONG=1 SEED=$(or $(SEED),$$(date +%s)) TORTURE_S=$(or $(TORTURE_S),60) \
	  $(BIN)/python -m pytest -n 0 -rs --capture=no --basetemp="$$scratch/t" tests/whole/$(TORTURED).py -k any_order

# A hundred upgrades in a row, the first from 0.1.0, while ralphs work: nothing is lost or done twice. SEED=N repeats one.
upgrades: $(STAMP)
	@nice -n 10 $(BIN)/python -m tests.upgrades $(if $(UPGRADES),--upgrades $(UPGRADES)) $(if $(SEED),--seed $(SEED))

# Twenty ralphs with faults for SOAK_S seconds (7200): does anything grow? SOAK_OUT=DIR keeps the plot and the samples.
soak: $(STAMP)
	@nice -n 10 $(BIN)/python -m tests.soak --seconds $(or $(SOAK_S),7200) $(if $(SEED),--seed $(SEED)) $(if $(SOAK_OUT),--out $(SOAK_OUT))

# The faults of a machine, for real where it can be done in a mount namespace of its own (root) or in a control group,
# else in the daemon's calls; and the daemon killed at each failpoint. `test` runs what SEED (1) chooses of both.
faults: FAULT_TESTS = tests/faults
matrix: FAULT_TESTS = tests/matrix
faults matrix: $(STAMP)
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && FAULTS=1 MATRIX=1 OUTER_MOUNTS=$$(readlink /proc/self/ns/mnt) \
	  $$(unshare --mount true 2>/dev/null && echo unshare --mount --propagation private) \
	  $(BIN)/python -m pytest -n $(or $(WORKERS),2) -rs --timeout 300 --basetemp="$$scratch/t" $(FAULT_TESTS)

bench: $(STAMP)
	@$(BIN)/python -m tests.bench $(ARGS)

# Measures how cost grows with size, and writes docs/growth.md; about an hour and 35 GB of disk. ONLY="SERIES..." for some.
growth: $(STAMP)
	@$(BIN)/python -m tests.growth $(ONLY)

clean:
	rm -rf $(VENV) .venv-bench $(MUTANTS_VENV) $(FUZZ_VENV) $(AUDIT_VENV) $(RELEASE_VENV) .agents .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
