# Every target sets up what it needs: with Python >= 3.11 and make, one command is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed
PIP     = $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test proofs soak reproduce results bench check docs guides wheel lock clean

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

reproduce: $(STAMP)     ## a quick look at the paper's figures: minutes
	-$(BIN)/roann data mnist  # without it, what needs it is left out and said
	$(BIN)/python -m paper run --jobs 2

results: $(STAMP)       ## every record from nothing: days; after an interruption, the same command continues
	-$(BIN)/roann data mnist
	$(BIN)/python -m paper run --scale full --jobs 2
	$(BIN)/python -m paper tables

bench: $(STAMP)         ## speed and memory on this machine
	$(BIN)/python -m benchmarks

check: $(STAMP) docs    ## style, types, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)          ## the documentation, warnings as errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

guides: $(STAMP)        ## run the guides in examples/ and write their pages: minutes
	$(BIN)/python docs/write_guides.py

wheel: $(STAMP)         ## a binary wheel in dist/, for every Python from 3.11 on this kind of machine
	$(BIN)/python .ci/wheel.py dist

clean:
	rm -rf $(VENV) build dist docs/_build src/*.egg-info .mypy_cache .pytest_cache .ruff_cache

lock: $(STAMP)          ## update requirements-ci.txt after a change of constraints.txt
	$(BIN)/python .ci/lock.py

# First every pinned file is fetched, then held to its hash as it is installed; setuptools, which
# builds the package, is one of them. (Fetched and installed in one, pip would pass over a CPU build
# of torch that a machine offers beside the registry's.) Last comes the package. On Linux the
# registry's torch needs CUDA packages, and a CPU build does not, so no one list serves both: this
# step adds them without a hash of ours, in the versions torch names. With a CPU build it adds nothing.
$(STAMP): pyproject.toml constraints.txt requirements-ci.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) download --no-deps --only-binary :all: --dest $(VENV)/files -r constraints.txt
	$(PIP) install --no-deps --no-index --find-links $(VENV)/files --require-hashes -r requirements-ci.txt
	rm -r $(VENV)/files
	$(PIP) install --no-build-isolation --check-build-dependencies -c constraints.txt -e ".[lab,estimators,dev,docs]"
	touch $@
