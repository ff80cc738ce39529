PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test testall check fix ci bench clean
.DEFAULT_GOAL := help

help:  ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-7s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --no-input -c constraints.txt -e ".[dev]"
	touch $(READY)

demo: $(READY)  ## FedAvg, VHL and FedGPS on the embedded digits, then the report
	$(BIN)/fedgps-ray sweep experiments/demo.toml --out runs/demo
	$(BIN)/fedgps-ray report runs/demo
	$(BIN)/python -m fedgps_ray.tools.demo runs/demo

test: $(READY)  ## the tests, in some minutes
	$(BIN)/python -m pytest -m "not slow and not ray" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m "ray and not slow"

testall: $(READY)  ## also the slow ones: crashes of actors, servers, processes and nodes on real Ray, and chaos
	$(BIN)/python -m pytest -m "not ray" -n 2 --dist loadfile
	$(BIN)/python -m pytest -m ray -n 2 --dist loadgroup --no-loadscope-reorder

check: $(READY)  ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(READY)  ## fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ci: check test  ## what CI runs

bench: $(READY)  ## our time against hand-written PyTorch on this machine
	$(BIN)/fedgps-ray bench

clean:  ## remove the environment and demo results
	rm -rf .venv runs
