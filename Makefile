# Tussock's commands. `make help` lists them; each sets up what it needs by itself.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The checkout's own tools first: Airflow finds spark-submit on PATH, and its jobs' Python through the same.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export AIRFLOW_HOME := $(CURDIR)

.PHONY: help setup demo up unit test test-deep check bench bench-store secrets containers docs tutorial wheel clean lock

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock, find or install Java 17, archive Spark's classes for it
	@scripts/setup.sh

demo: setup ## load the flights, run days of them through Airflow, compare every view with Spark
	@python scripts/demo.py

up: setup ## start Airflow (scheduler, API server, UI) on http://localhost:8080, for this machine only; the password is shown
	@scripts/airflow.sh up

unit: ## the tests that need no JVM, in parallel; ROOM=plan takes those of one folder
	@scripts/setup.sh python
	@python -m pytest --no-jvm -n auto $(if $(ROOM),$$(find tests -type d -name $(ROOM) -not -name __pycache__),tests)

test: setup ## all tests but the deep ones
	@scripts/test.sh

test-deep: setup ## the long ones: more seeds, more steps, clusters, real S3 servers; records the run in .tussock/deep.json
	@python -m scripts.deep_run

check: setup ## ruff, mypy, and the contracts of rooms
	@ruff check --no-cache .
	@ruff format --no-cache --quiet --check --diff .
	@mypy
	@python -m scripts.rooms

bench: setup ## the benchmarks; results as a table and as JSON in benchmarks/results/
	@python -m benchmarks

bench-store: setup ## the state store against RocksDB and SlateDB, and its requests over slow S3
	@python -m benchmarks store

secrets: ## random secrets for docker/compose.yaml, in docker/.env, which only you can read
	@docker/secrets.sh

containers: ## build the images without a registry, run compose's services and the flights in them, and look (root of a Debian)
	@python3 scripts/containers.py

docs: setup ## the pages of docs/ that are made from the code
	@python -m tests.functions.registry
	@python -m scripts.reference_pages

tutorial: setup ## run the commands of docs/tutorial.md, and write what they say into it
	@python -m pytest tests/jobs/test_user_pages.py -q --update-cases -k tutorial

wheel: setup ## the package, and the versions it is tested with, for another Python: dist/
	@rm -rf dist
	@python -m hatchling build -t wheel -d dist
	@sed -n 's/^\([A-Za-z0-9][^\]*[^ \]\) *\\*$$/\1/p' requirements.lock | sed 's/\[[a-z0-9,-]*\]==/==/' > dist/constraints.txt
	@python -m twine check --strict dist/*.whl

clean: ## remove what the commands above made, but not .venv
	@rm -rf .airflow .tussock build dist spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

lock: setup ## resolve pyproject.toml anew into requirements.lock
	@uv pip compile pyproject.toml --extra all --extra delta-spark --group demo --group dev --group bench --group build \
	    --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --upgrade --output-file requirements.lock
