#!/bin/sh
# Makes .venv-NAME from the hashed lock requirements/NAME-py311.txt; does nothing when .venv-NAME already matches it.
# Usage: scripts/setup_beside.sh airflow       (scripts/airflow.sh calls it)
#        scripts/setup_beside.sh clients       (make clients)
# Environments of their own: Airflow, others' clients and TFX want different versions of what they share.
set -eu
cd "$(dirname "$0")/.."
minor=$(.venv/bin/python -c 'import sys; print("%d%d" % sys.version_info[:2])')
lock=requirements/$1-py$minor.txt venv=.venv-$1
if [ ! -e "$lock" ]; then
    echo "bert-tfx: no $lock: $1 is locked for Python 3.11 alone; .venv has another one" >&2
    exit 2
fi
stamp=$venv/.made-from
wanted=$(cat "$lock" scripts/setup_beside.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
echo "bert-tfx: setting up $venv from $lock (once; about a minute)"
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE="${UV_LINK_MODE:-copy}" VIRTUAL_ENV="$PWD/$venv"
rm -f "$stamp"
.uv/bin/uv venv --quiet --clear --python "$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" "$venv"
.uv/bin/uv pip sync --quiet --require-hashes "$lock"
echo "$wanted" > "$stamp"
