# Thin: each target sets up .venv (once) and runs one documented command.
# An environment may forbid bytecode files; TFX then takes 26 s to import instead of 10.
unexport PYTHONDONTWRITEBYTECODE
RUN = .venv/bin

.PHONY: help setup demo test parity airflow-demo lint lock docs
help:           ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12
setup:          ## make .venv from the hashed lock, if it is not there
	@scripts/setup.sh
demo: setup     ## text to a served BERT (ARGS="--corpus 'text/*.txt'" for your own)
	$(RUN)/bert-tfx demo $(ARGS)
test: setup     ## all tests but the slow ones (ARGS="-k gate" for some)
	@scripts/test.sh $(ARGS)
parity: setup   ## the tests against transformers on torch, in .venv-bench
	@scripts/setup_bench.sh
	.venv-bench/bin/python -m pytest tests/parity $(ARGS)
airflow-demo: setup  ## the demo as a DAG of Airflow, with its databases (ARGS="--web" for its pages)
	@scripts/airflow.sh $(ARGS)
lint: setup     ## ruff and mypy
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
lock: setup     ## resolve pyproject.toml into requirements/*.txt again
	scripts/lock.sh
docs: setup     ## docs/cli.md from the command line's own help
	$(RUN)/typer pipeline.cli utils docs --name bert-tfx --output docs/cli.md
