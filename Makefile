# Every target does the set-up that it needs: on a fresh Debian or Ubuntu, python3 and make are enough.
# Once installed, a target needs no network; only `make figures` and `make lab` may fetch data, where their profile says so.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# packages are installed without compiling them: where this is set, each process would compile torch again
unexport PYTHONDONTWRITEBYTECODE

PYTHON  ?= python3
PROFILE ?= small
# Installed before the other packages, so that a build for this machine can be chosen: make test TORCH=torch==2.12.0
TORCH   ?= torch==2.13.0

# For Jupyter itself: make lab ARGS="--no-browser --port 9000"
ARGS    ?=

# The extras come along, so that no test is skipped for want of one.
WHOLE   := .[notebooks,dev,docs,sentence-transformers,mteb,faiss,minilm,bases]

VENV := .venv
BIN  := $(VENV)/bin
# Faster than pip: the one on the path, else one in the environment
UV    = $(shell command -v uv || ls $(BIN)/uv 2>/dev/null)
# The modules, then the sections of their docstrings
EXPORT = $(BIN)/nbdev_clean && $(BIN)/nbdev_export && $(BIN)/python docs/docstrings.py
SYSTEM := libpango-1.0-0 libpangocairo-1.0-0 libpangoft2-1.0-0 fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji
ALL         = $(basename $(notdir $(sort $(wildcard nbs/[0-9]*.ipynb))))
# the report last: it joins what the others left
EXPERIMENTS = $(filter-out 90_report,$(ALL)) $(filter 90_report,$(ALL))
LIBRARY     = $(sort $(shell find nbs/api -name "*.ipynb" -not -path "*/.ipynb_checkpoints/*")) $(wildcard nbs/index.ipynb nbs/howto/*.ipynb)

# uv does not read pip's variables: hand it those that say where packages come from.
UV_ENV   := $(if $(PIP_CERT),SSL_CERT_FILE="$(PIP_CERT)") $(if $(PIP_FIND_LINKS),,UV_TORCH_BACKEND=auto)
UV_FLAGS := $(if $(PIP_FIND_LINKS),--find-links "$(PIP_FIND_LINKS)") $(if $(PIP_INDEX_URL),--index-url "$(PIP_INDEX_URL)")
# not compiled: a process compiles what it imports, which is a small part
PIP      := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
INSTALL   = $(if $(UV),env $(UV_ENV) $(UV) pip install --quiet --python $(BIN)/python $(UV_FLAGS) $(1) || { echo "uv could not: trying pip"; $(PIP) $(1); },$(PIP) $(1))

.PHONY: help setup leapfrog test lab clean-notebooks figures report notebooks export site system clean

help: ## this list
	@echo "make TARGET [PROFILE=demo|small|paper]; each target installs what it needs into $(VENV)"
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 20

leapfrog: setup ## the main job in minutes, offline: learn English from other languages, draw the curve
	@$(BIN)/sentnb run 05_leapfrog -p demo

test: setup ## all tests (with SENTNB_HUB set to a mirror of the public data: those on real text too)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lab: setup ## JupyterLab, at the tour; it saves what you write, and no outputs (those go to lab/)
	@JUPYTER_CONFIG_PATH="$(CURDIR)$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
	  $(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

clean-notebooks: setup ## undo what another Jupyter saved in nbs/ besides your edits: outputs, metadata
	@$(BIN)/python jupyter_server_config.py

figures: setup ## run every experiment at PROFILE (default small)
	@for name in $(EXPERIMENTS); do $(BIN)/sentnb run $$name -p $(PROFILE); done

report: setup ## the tables of the papers beside ours
	@$(BIN)/sentnb run 90_report -p $(PROFILE)

notebooks: setup ## run the library notebooks again in place, clean them, export the library
	@env -u SENTNB_HUB TQDM_DISABLE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 \
	  $(BIN)/jupyter execute --inplace --startup_timeout=120 $(LIBRARY)
	@$(EXPORT)

export: setup ## write sentnb/ from nbs/api
	@$(EXPORT)

site: setup ## all of it as pages to read and to search, in site/
	@$(BIN)/python docs/build.py

clean: ## remove what can be made again (not .venv)
	@rm -rf data/cache site build dist *.egg-info .pytest_cache .hypothesis _proc _docs
	@find nbs sentnb tests -name __pycache__ -o -name .ipynb_checkpoints | xargs -r rm -rf

setup: system $(VENV)/.installed ## install all of it, and run nothing

# Asked of dpkg at each call, which takes no time; apt runs only where something is missing.
system:
	@missing=""; \
	if command -v dpkg-query >/dev/null; then \
	  for package in $(SYSTEM); do \
	    [ "$$(dpkg-query -W -f='$${db:Status-Status}' $$package 2>/dev/null || true)" = installed ] || missing="$$missing $$package"; \
	  done; \
	  $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	elif ! $(PYTHON) -c 'from ctypes.util import find_library as f; raise SystemExit(not (f("pangocairo-1.0") and f("pangoft2-1.0")))'; then \
	  echo "Pango is missing, and this is neither Debian nor Ubuntu: install pango, cairo and the Noto fonts, or use environment.yml"; exit 1; \
	fi; \
	if [ -n "$$missing" ]; then \
	  sudo=""; \
	  if [ "$$(id -u)" != 0 ]; then \
	    if command -v sudo >/dev/null; then sudo=sudo; else echo "missing; as root: apt-get install$$missing"; exit 1; fi; \
	  fi; \
	  echo "installing$$missing"; \
	  $$sudo apt-get update -qq || echo "apt-get update failed; trying with the lists that are here"; \
	  $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

# The stamps make a second call instant, and let it work without a network.
$(BIN)/python: | system
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "sentnb needs Python 3.10 or newer; name one: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || $(PIP) uv || echo "no uv: pip installs the packages"

$(VENV)/.torch: | $(BIN)/python
	@echo "installing $(TORCH) into $(VENV)"
	@$(call INSTALL,"$(TORCH)")
	@touch $@

$(VENV)/.installed: settings.ini setup.py $(VENV)/.torch
	@echo "installing sentnb and its requirements into $(VENV)"
	@$(call INSTALL,-e "$(WHOLE)")
	@touch $@
