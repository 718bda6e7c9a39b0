# Every target sets up what it needs: with Python >= 3.11 and make, one command is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.PHONY: demo test proofs soak results check docs clean

demo: $(STAMP)          ## why the project exists, in about a minute
	$(BIN)/roann demo

test: $(STAMP)          ## the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto  # a worker per core, a thread each

proofs: $(STAMP)        ## the long proofs
	$(BIN)/python -m pytest -m slow

KILLS ?= 1000
SOAK   = $(if $(filter 1000,$(KILLS)),results/soak/soak.json,build/soak-$(KILLS).json)

soak: $(STAMP)          ## kill -9 at random moments, faults between, bitwise compared; KILLS=20 for a short one
	OMP_NUM_THREADS=1 $(BIN)/python tests/soak/soak.py --kills $(KILLS) --out $(SOAK)

results: $(STAMP)       ## results/ from nothing, in days; stopped, the same command goes on
	-$(BIN)/roann data mnist  # without it, what needs it is left out and said
	$(BIN)/roann reproduce all --scale full --jobs 2
	$(BIN)/roann bench

check: $(STAMP) docs    ## style, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)          ## the documentation, warnings as errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

clean:
	rm -rf $(VENV) build docs/_build src/*.egg-info .mypy_cache .pytest_cache .ruff_cache

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[lab,dev,docs]"
	touch $@
