# Every target sets up what it needs in .venv; nothing but make and a Python 3.11+ has to be here before.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-unit test-full test-lowest test-spark check format map docs bench lock setup clean

python := .venv/bin/python
spark := scripts/with-spark python
processes := 3 # that run tests at the same time: each waits for Spark half of its time, and takes up to 6 GB
tests := -m pytest -n $(processes) --durations=15

help: ## show this list
	@echo "Emberflow: TensorFlow and Keras on Apache Spark."
	@echo
	@echo "Start here:"
	@echo "  make demo       train a small network on a Spark of two executors, on this machine (1 to 2 minutes)"
	@echo "  make test-unit  the quick tests: seconds, neither Java nor TensorFlow"
	@echo
	@echo "All targets (each does its own set-up; the first takes a few minutes, after that it starts at once):"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "More: README.md for users, CONTRIBUTING.md for work on Emberflow itself."

setup: ## make .venv from requirements.lock
	@scripts/setup

demo: setup ## train on two Spark executors, show a page of it, write demo-output/predictions.png and report.html
	@$(spark) -m emberflow.cli.main demo

test: setup ## all tests but the long ones, on real Spark clusters
	@$(spark) $(tests) -m "not full"

test-unit: setup ## the tests of tests/unit only: seconds, neither Java nor TensorFlow
	@$(python) $(tests) -m "not full" tests/unit

test-full: setup ## every test on every kind of cluster (long)
	@$(spark) $(tests)

test-lowest: setup ## many workers against one process, with the lowest versions that pyproject.toml allows
	@scripts/setup-lowest
	@.venv-lowest/bin/python -m pytest -q -m "not full" tests/tensorflow/test_data_parallel.py tests/unit/test_row_kinds.py

test-spark: setup ## each capability once on another Spark: make test-spark VERSION=3.5
	@scripts/setup-spark $(VERSION)
	@.venv-spark-$(VERSION)/bin/python -m pytest -q --durations=15 -m smoke

check: setup ## ruff, mypy and the layer rules; changes nothing
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@$(python) -m mypy
	@if [ -f .importlinter ] || grep -q '^\[tool.importlinter' pyproject.toml; then .venv/bin/lint-imports; fi

format: setup ## let ruff repair what it can
	@$(python) -m ruff check --fix .
	@$(python) -m ruff format .

map: setup ## write the map of folders and files in ARCHITECTURE.md anew
	@$(python) -m tests.architecture.source_map

docs: setup ## build the documentation site in site/; open site/index.html
	@$(python) scripts/site_pages.py build/site-pages
	@.venv/bin/zensical build --strict

bench: setup ## the benchmarks; each prints one line of JSON
	@for file in $$(ls benchmarks/[a-z]*.py | grep -vE '_(rank|side)\.py$$|/measure\.py$$'); do $(spark) -m "benchmarks.$$(basename "$$file" .py)"; done

lock: setup ## write requirements.lock anew from pyproject.toml (needs uv)
	@uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --generate-hashes --no-header -o requirements.lock

clean: ## delete .venv and everything that was built or cached
	rm -rf .venv .venv-lowest .venv-spark-* build dist site demo-output spark-warehouse metastore_db derby.log
	rm -rf .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
