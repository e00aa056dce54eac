# Each target sets up .venv by itself when it is missing or older than what it is made from.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: setup quickstart test test-rest test-all test-gpu faults simulate check check-ray bench audit sbom schema docs docs-serve gallery clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

quickstart: setup  ## the paper's story in two or three minutes
	$(BIN)/disentune run sweeps/quickstart.yaml

test: setup  ## every unit and oracle test, a tenth of the fuzzing, and one real pass over Ray, W&B, the browser and a cluster
	$(BIN)/python -m pytest -m "not long and not ray and not cluster and not browser" -n 2
	$(BIN)/python -m pytest -m "not long and (ray or cluster or browser)" -n 2 --dist loadgroup --durations 10

test-rest: setup  ## what `make test` leaves out: every fault, the whole cluster, reproduction, all of the fuzzing
	FUZZ_TIMES=1 $(BIN)/python -m pytest -m "fuzz or long" -n 3 --dist loadgroup --durations 20

test-all: test test-rest  ## every test there is

test-gpu: setup  ## what only a GPU can show, and build/gpu_throughput.md; skips everything without a CUDA device
	$(BIN)/python -m pytest -m "gpu and (long or not long)" -rs -s tests/gpu

faults: setup  ## real faults of every kind at random moments of a sweep on Ray; best as root
	$(BIN)/python -m pytest -m "long or not long" tests/faults

SEEDS ?= 1000
FIRST ?= 0
simulate: setup  ## sweeps with random sequences of faults, without Ray: make simulate SEEDS=10000
	cd tests && ../$(BIN)/python -m simulation --seeds $(SEEDS) --first $(FIRST)

check: setup  ## what CI runs: style, types, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(MAKE) test-all

RAY_VENV = $(VENV)/ray-$(or $(VERSION),newest)
check-ray:  ## whether another Ray has the private parts that disentune uses: make check-ray VERSION=2.61.0; default: the newest
	test -x $(RAY_VENV)/bin/python || $(PYTHON) -m venv $(RAY_VENV)
	$(RAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'ray[tune,default]$(addprefix ==,$(VERSION))'
	PYTHONPATH=src $(RAY_VENV)/bin/python -m disentune.driver.ray_internals

bench: setup  ## measured ratios against named rivals, written to docs/benchmarks.md; BENCH_LONG=1 takes a quiet hour or two
	missed=0; \
	for file in benchmarks/bench_*.py; do echo "# $$file"; $(BIN)/python $$file || missed=1; done; \
	if [ -n "$(BENCH_LONG)" ]; then $(BIN)/python benchmarks/bench_scale.py 100 12600 --keep || missed=1; fi; \
	$(BIN)/python benchmarks/page.py && exit $$missed

audit: $(VENV)/.audit  ## known holes in the packages that are pinned; asks the network
	$(VENV)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip

$(VENV)/.audit:
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	touch $@

sbom: setup  ## builds the wheel, and dist/sbom.cdx.json: all that it needs, as CycloneDX
	rm -f dist/*.whl
	SOURCE_DATE_EPOCH=1577836800 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/python .ci/sbom.py dist/disentune-*.whl constraints.txt > dist/sbom.cdx.json

schema: setup  ## rewrites schemas/ from the classes
	$(BIN)/python -m disentune.spec.schema

export NO_MKDOCS_2_WARNING = 1
docs: setup  ## builds site/; fails when a generated page is stale, a link is broken or a command fails; LONG=1 runs the long ones too
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/check.py $(if $(LONG),--long)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: setup  ## shows the site on http://127.0.0.1:8000 and follows changes
	$(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8000

gallery: setup  ## draws the figures of docs/gallery.md from a small run
	$(BIN)/python docs/gallery.py

clean:  ## leaves a fresh clone
	rm -rf $(VENV) runs build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf
