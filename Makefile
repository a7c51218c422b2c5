# Each target sets up what it needs: a virtual environment in .venv from the lock, made once.
# `make run ARGS='--config hardware=cuda'` passes more to snakemake; `make PYTHON=/path/to/python3.12 run` names a Python.

ARGS :=
PYTHON :=

# Rules call `python`, which has to be the environment's. Recipes name paths below this folder only, since the folder's
# own name may hold spaces, and start the environment's programs as modules.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
unexport PYTHONPATH PYTHONHOME
RUN := .venv/bin/python -m
SOURCES := Snakefile rules

.PHONY: run test lint bench doctor pin environment test-environment

run: environment
	$(RUN) snakemake --cores all --resources gpu=1 $(ARGS)

# The linters are among the tests.
test: test-environment
	$(RUN) pytest $(ARGS)

lint: test-environment
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) snakefmt --check $(SOURCES)
	$(RUN) snakemake --lint

# The benchmarks work on the default experiment's model and rows, which the workflow makes first.
bench: environment
	$(RUN) snakemake --cores all -- results/models/smollm2-135m/manifest.json results/sentiment/splits/seed1/train.jsonl
	PYTHONPATH='$(CURDIR)/scripts:$(CURDIR)/tests' $(RUN) benchmarks $(ARGS)
	PYTHONPATH='$(CURDIR)/scripts:$(CURDIR)/tests' $(RUN) benchmarks.scaling

doctor: environment
	@$(RUN) snakemake --cores 1 --forcerun doctor --quiet host progress reason rules $(ARGS) -- doctor

# After a package was upgraded in .venv, or a list asks for another one (docs/environments.md).
pin: test-environment
	.venv/bin/python envs/pin.py

environment:
	@sh envs/install.sh requirements.lock '$(PYTHON)'

test-environment: environment
	@sh envs/install.sh requirements-test.lock '$(PYTHON)'
