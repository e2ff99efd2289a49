# SPDX-License-Identifier: Apache-2.0
# Everything runs in .venv, which is made on first use. Needed: python3 (3.10 or later), g++, make,
# perl and a package index.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
FOLDERS := gen golden rtl synth verif

.PHONY: demo test regress lint format clean

demo: .venv/stamp
	$(BIN)/dysharp demo

test: lint
	$(BIN)/pytest -n $(JOBS) -m "not regress"

regress: lint
	$(BIN)/pytest -n $(JOBS)

lint: .venv/stamp $(FOLDERS:%=build/mypy/dysharp/%)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf build dist .venv *.egg-info

.venv/stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check --quiet --editable ".[sim,dev]"
	touch $@

build/mypy/dysharp/%:
	mkdir -p $(@D)
	ln -sfn ../../../$* $@
