# Thin: each target sets up .venv (once) and runs one documented command.
# An environment may forbid bytecode files; TFX then takes 26 s to import instead of 10.
unexport PYTHONDONTWRITEBYTECODE
RUN = .venv/bin

.PHONY: help setup demo airflow-demo test test-quick test-debian13 parity clients lint lock licences audit docs docs-site
help:           ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 16
setup:          ## make .venv from the hashed lock, if it is not there
	@scripts/setup.sh
demo: setup     ## text to a served BERT (ARGS="--corpus 'text/*.txt'" for your own)
	$(RUN)/bert-tfx demo $(ARGS)
airflow-demo: setup  ## the demo as a DAG of Airflow, with its databases (ARGS="--web" for its pages)
	@scripts/airflow.sh $(ARGS)
test: setup     ## all tests but the slow ones (ARGS="-k gate" for some)
	@scripts/test.sh $(ARGS)
test-quick: setup ## the tests that import neither TensorFlow nor TFX: two minutes, at every change
	@scripts/test.sh --quick $(ARGS)
test-debian13:  ## demo and tests on Debian 13, Python 3.13, in a root filesystem of their own (as root; ARGS="tests/unit/serving")
	ci/debian13.sh $(ARGS)
parity: setup   ## the tests against transformers on torch, in .venv-bench
	@scripts/setup_bench.sh
	.venv-bench/bin/python -m pytest -m "not slow" -n 2 --dist loadfile tests/parity $(ARGS)
clients: setup  ## the server against openai, cohere, kserve, ..., in .venv-clients
	@scripts/setup_beside.sh clients
	@scripts/setup_beside.sh old-clients
	$(RUN)/python -m pytest tests/clients $(ARGS)
lint: setup     ## ruff, mypy and hadolint
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/hadolint docker/Dockerfile
lock: setup     ## resolve pyproject.toml into requirements/*.txt again
	scripts/lock.sh
licences: setup ## requirements/licences.md from the installed packages' metadata
	$(RUN)/python scripts/licences.py
audit: setup    ## known vulnerabilities of the locked packages (needs PyPI's advisories)
	@scripts/audit.sh $(ARGS)
docs-site: setup ## the documentation as a site, in site/html: every link checked
	@test -x .venv-docs/bin/zensical || .uv/bin/uv venv --quiet --clear --python .venv/bin/python .venv-docs
	@.uv/bin/uv pip sync --quiet --python .venv-docs --require-hashes requirements/docs.txt
	@.venv-docs/bin/python scripts/docs_site.py
docs: setup     ## docs/cli.md from the command line's own help
	$(RUN)/typer pipeline.cli utils docs --name bert-tfx --output docs/cli.md
