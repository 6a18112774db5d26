# Everything lives in .venv inside the project; nothing is written elsewhere.
# Works with GNU make and any Python 3.11+ that has venv and pip; `make setup PYTHON=/path/to/python` names one.

VENV  := .venv
RUN   := $(VENV)/bin/python
STAMP := $(VENV)/.installed
USABLE = import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3.14 python3,$(shell $(p) -c '$(USABLE)' 2>/dev/null && echo $(p))))
MARKED := sim or slow

.PHONY: setup check test sim clean

setup: $(STAMP)

# pip is asked, not the directory: an interrupted `venv` leaves a python without pip behind.
$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "setup: no Python 3.11+ with venv found; install one (Debian: python3 python3-venv) or say make setup PYTHON=/path/to/python" >&2; exit 2; }
	@echo "setup: $(PYTHON) -> $(VENV), editable install with the extras test and dev"
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	@touch $@

check: setup
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q -n 2 -m 'not ($(MARKED))'

test: check
	$(RUN) -m pytest -q -n 2 -m '$(MARKED)'

sim: setup
	$(VENV)/bin/dlmq sim --seeds 300

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
