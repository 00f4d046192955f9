#!/bin/sh
# Makes .venv-airflow from its hashed lock; does nothing when .venv-airflow already matches it.
# Usage: scripts/setup_airflow.sh        (scripts/airflow.sh calls it)
# Its own environment: Airflow and TFX want different versions of what they share. Airflow's tasks call .venv's commands.
set -eu
cd "$(dirname "$0")/.."
minor=$(.venv/bin/python -c 'import sys; print("%d%d" % sys.version_info[:2])')
lock=requirements/airflow-py$minor.txt
if [ ! -e "$lock" ]; then
    echo "bert-tfx: no $lock: Airflow is locked for Python 3.11 alone; .venv has another one" >&2
    exit 2
fi
stamp=.venv-airflow/.made-from
wanted=$(cat "$lock" scripts/setup_airflow.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
echo "bert-tfx: setting up .venv-airflow from $lock (once; about a minute)"
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE="${UV_LINK_MODE:-copy}" VIRTUAL_ENV="$PWD/.venv-airflow"
rm -f "$stamp"
.uv/bin/uv venv --quiet --clear --python "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" .venv-airflow
.uv/bin/uv pip sync --quiet --require-hashes --compile-bytecode "$lock"
echo "$wanted" > "$stamp"
