# Commands of the repository. `make help` lists them. Each command installs its requirements first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# Put .venv first on PATH, so that Airflow finds the right spark-submit, and its jobs the right Python.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export AIRFLOW_HOME := $(CURDIR)

.PHONY: help setup demo postgres-demo lake-demo up unit test test-deep truth matrix check bench bench-store secrets containers docs site tutorial wheel \
	clean lock

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install requirements.lock into .venv, find or install Java, and archive Spark's classes
	@scripts/setup.sh

demo: setup ## run days of real flights through Airflow, and compare every view with Spark
	@python scripts/demo.py

postgres-demo: setup ## read tables of a Postgres server, and publish views to it, on a server of its own
	@python scripts/postgres_demo.py

lake-demo: setup ## publish days of orders as Iceberg and Delta tables, and query them with DuckDB and Spark
	@python scripts/lake_demo.py

up: setup ## start Airflow on http://localhost:8080, for this machine only, and print its password
	@scripts/airflow.sh up

unit: ## run the tests that need no JVM, in parallel; ROOM=plan selects one room
	@scripts/setup.sh python
	@python -m pytest --no-jvm -n auto $(if $(ROOM),$$(find tests/unit -type d -name $(ROOM)),tests/unit)

test: setup ## run all tests except the deep ones; LANES="unit spark" selects lanes (folders of tests/)
	@scripts/test.sh $(LANES)

test-deep: setup ## run the deep tests (more seeds, clusters, S3 servers); record them in .tussock/deep.json
	@python -m scripts.deep_run

truth: setup ## record Spark's answers to new cases in tests/spark_truth; ANEW=--anew asks all again
	@python -m tests.support.record_truth $(ANEW)

matrix: setup ## run the tests that depend on a version with older and newer releases; write docs/versions.md
	@python -m scripts.matrix $(CELLS)

check: setup ## run ruff, mypy, and the contracts of rooms
	@ruff check --no-cache .
	@ruff format --no-cache --quiet --check --diff .
	@mypy
	@python -m scripts.rooms

bench: setup ## run the main benchmarks; print a table, and write JSON to benchmarks/results/
	@python -m benchmarks

bench-store: setup ## compare the state store with RocksDB and SlateDB; count requests on slow S3
	@python -m benchmarks store

secrets: ## write random secrets for docker/compose.yaml to docker/.env, readable only by you
	@docker/secrets.sh

containers: ## build the images without a registry, and run the flights in them (needs root on Debian)
	@python3 scripts/containers.py

docs: setup ## write the pages of docs/ that are made from the code
	@python -m tests.support.functions.registry
	@python -m scripts.reference_pages

site: ## build the documentation site in site/, without any other host
	@scripts/setup.sh python mkdocs material
	@NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --quiet
	@echo "built: open site/index.html, or for search: python -m http.server -d site 8000"

tutorial: setup ## run the commands of docs/tutorial.md, and write their output into it
	@python -m pytest tests/spark/end_to_end/test_user_pages.py -q --update-cases -k tutorial

wheel: ## build the wheel and the list of tested versions in dist/
	@scripts/setup.sh python hatchling twine
	@rm -rf dist
	@python -m hatchling build -t wheel -d dist
	@sed -n 's/^\([A-Za-z0-9][^\]*[^ \]\) *\\*$$/\1/p' requirements.lock | sed 's/\[[a-z0-9,-]*\]==/==/' > dist/constraints.txt
	@python -m twine check --strict dist/*.whl

clean: ## remove the files that these commands made, except .venv
	@rm -rf .airflow .tussock build dist site spark-warehouse metastore_db derby.log .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

lock: setup ## resolve pyproject.toml again into requirements.lock
	@uv pip compile pyproject.toml --extra all --extra clouds --extra delta-spark --extra kafka-avro --extra dialects \
	    --group demo --group dev --group bench --group build --group docs \
	    --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --quiet --upgrade --output-file requirements.lock
