# Every target makes what it needs (.venv) with nothing but Python 3.11 or newer.
# `make` alone lists the targets. ARGS="..." is passed on: make demo ARGS="--turns 4".
# PYTHON=/path/to/python3 chooses the interpreter that .venv is made with (make clean to change it).
# FROM="/path/to/folder" sets up without a network, from a folder that make offline has filled.

BIN := .venv/bin
COVERAGE_PCT := 90
LOWEST := build/lowest
LAB_EXTRAS := lab,parquet

WORKERS = -p no:nbval -n logical --maxprocesses 8 --dist worksteal
# Tests that start programs wait for them more than they compute.
WAITING = -p no:nbval -n 4 --dist
NBVAL = -p tests.quick_jsonschema --nbval --nbval-current-env --nbval-cell-timeout 60 --timeout 300 \
	--nbval-sanitize-with notebooks/nbval_sanitize.cfg

# "setup" if .venv is missing, was moved, or has lost its Python: then everything is installed again.
STATE := $(shell [ -x $(BIN)/python ] && [ "$$(cat .venv/.folder 2>/dev/null)" = "$$(pwd -P)" ] || echo setup)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo lab offline test check check-static check-lowest check-process check-notebooks
.PHONY: check-faults check-live check-browser coverage notebooks screenshots looks playground
.PHONY: bench clean setup docs dist check-systems
export PYTHON FROM TO
# If it is set, as in many containers, every program that is started compiles its libraries again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: .venv/.ready-demo ## replay a recorded run, then continue it live on a real model
	$(BIN)/llmsim-lab demo $(ARGS)

lab: .venv/.ready-lab ## open the notebooks in JupyterLab
	$(if $(ARGS),$(BIN)/python -m jupyterlab $(ARGS),$(BIN)/llmsim-lab lab notebooks)

offline: .venv/.ready-lab ## fill the folder TO for machines without a network
	@sh scripts/setup-venv.sh fill $(LAB_EXTRAS) $(if $(ARGS),$(ARGS),qwen2.5-coder-1.5b)

test: .venv/.ready-test ## run the quick tests: all but those that start programs or take long
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(WORKERS))

check: test check-static check-process check-lowest check-notebooks docs check-browser ## run everything that CI checks

check-static: .venv/.ready-all ## check format, lint and types, those of Windows too
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -m mypy --platform win32 --cache-dir .mypy_cache/win32

# What only Windows or macOS has, and what they lack, by the types of Python's library.
check-systems: .venv/.ready-all ## check types as on Windows and macOS
	$(BIN)/python -m mypy --platform win32 --cache-dir .mypy_cache/win32
	$(BIN)/python -m mypy --platform darwin --cache-dir .mypy_cache/darwin

docs: .venv/.ready-all ## build the documentation site into build/site and check its links
	$(BIN)/python scripts/build_docs.py

dist: .venv/.ready-all ## build the wheel and the sdist into dist and check them
	rm -rf dist
	$(BIN)/python -m uv build --out-dir dist
	$(BIN)/uv tool run twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/uv tool run check-wheel-contents dist/*.whl

check-process: .venv/.ready-test ## run the tests that start programs or take long
	$(BIN)/python -m pytest -m process $(if $(ARGS),$(ARGS),$(WAITING) worksteal)

# -rs: where no server answers, the tests are skipped and the summary says so.
check-live: .venv/.ready-test ## test a real Ollama server, at OLLAMA_HOST or the usual port
	$(BIN)/python -m pytest -p no:nbval -m live -rs $(if $(ARGS),$(ARGS),tests/live)

coverage: .venv/.ready-test ## measure what the quick tests and those that start programs cover, with branches
	$(BIN)/python -m pytest $(WORKERS) --cov --cov-report=
	$(BIN)/python -m pytest -m process $(WORKERS) --cov --cov-append --cov-report=term \
		--cov-fail-under=$(COVERAGE_PCT)

# check-process has the same in brief, with a fixed seed.
check-faults: .venv/.ready-test ## try hostile input and faults for some three minutes (ARGS=--long: fifteen times what is by chance)
	$(BIN)/python -m pytest -m process $(WAITING) worksteal tests/faults --full --seed=-1 $(ARGS)

# Each library that the core calls is called by these; the rest of the tests is the same code again.
check-lowest: .venv/.ready-all ## run what calls libraries on the lowest versions allowed (Python 3.11 if it is here)
	env -u UV_DEFAULT_INDEX -u UV_INDEX_URL $(BIN)/uv lock --check --offline --no-config
	$(BIN)/uv venv --quiet --clear --seed --no-python-downloads --python 3.11 $(LOWEST) || \
		$(BIN)/uv venv --clear --seed --python "$$(sh scripts/setup-venv.sh python)" $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		--editable ".[embedded,notebooks,test]"
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(WORKERS) -m "not embedded and not process" \
		$(if $(ARGS),$(ARGS),tests/test_*.py tests/contracts tests/util tests/prompts tests/cli \
		$(addprefix tests/llm/test_,client.py ollama.py openai.py streaming.py choose.py))

# Cards of the economic gate that notebooks make are kept apart from the user's.
check-notebooks notebooks: export LLMSIM_CARDS = $(CURDIR)/build/no-cards
check-notebooks: .venv/.ready-test ## run the notebooks and compare their outputs
	$(BIN)/python -m pytest $(NBVAL) -n 2 --dist loadfile notebooks

check-browser: .venv/.ready-browser ## test the widgets in a real JupyterLab (needs Chromium and npm)
	$(BIN)/python -m pytest -m browser $(if $(ARGS),$(ARGS),$(WAITING) loadfile tests/browser)

screenshots: .venv/.ready-browser ## make the README's animation and picture again
	$(BIN)/python tests/browser/take_screenshots.py
	$(BIN)/llmsim-lab demo --no-live --out out/demo
	cp out/demo/demo.png docs/demo.png

looks: .venv/.ready-browser ## take every widget and page, light and dark, wide and narrow, into out/looks
	$(BIN)/python tests/browser/take_screenshots.py --looks out/looks $(ARGS)

notebooks: .venv/.ready-test ## run the notebooks and save the new outputs
	$(BIN)/python -m nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.store_widget_state=False \
		--ExecutePreprocessor.record_timing=False notebooks/*.ipynb

playground: .venv/.ready-lab ## make a folder in which a browser plays worlds by itself (needs npm)
	$(BIN)/python playground/build.py $(ARGS)

bench: .venv/.ready-lab ## measure the package's speed, into bench.json
	$(BIN)/python benchmarks/bench.py --out bench.json $(ARGS)

clean: ## remove .venv, caches and build products (not out/, where your runs are)
	rm -rf .venv .coverage coverage.xml htmlcov build dist .mypy_cache .pytest_cache .ruff_cache
	find llmsim_lab tests benchmarks notebooks \( -name __pycache__ -o -name .ipynb_checkpoints \) \
		-prune -exec rm -rf {} + 2>/dev/null || true

.venv/.ready-demo: pyproject.toml $(STATE)
	@sh scripts/setup-venv.sh install demo embedded

.venv/.ready-lab: pyproject.toml $(STATE)
	@sh scripts/setup-venv.sh install lab $(LAB_EXTRAS)

.venv/.ready-test: pyproject.toml $(STATE)
	@sh scripts/setup-venv.sh install test embedded,notebooks,test

.venv/.ready-browser: pyproject.toml $(STATE)
	@sh scripts/setup-venv.sh install browser embedded,notebooks,test,browser

.venv/.ready-all: pyproject.toml $(STATE)
	@sh scripts/setup-venv.sh install all all

setup:
