#!/bin/sh
# Makes .venv-bench: all of .venv, and what it is compared with (the group `bench` of pyproject.toml) on top.
# Usage: scripts/setup_bench.sh        (the Makefile calls it)
#        scripts/setup_bench.sh cpu    without a .venv-bench, ends with 3 where pip finds no CPU build of torch (.ci/run)
# By pip, not uv: where a machine's pip is told of a CPU build of torch (find-links, an index), that is the one wanted.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv-bench/.made-from
wanted=$(cat .venv/.made-from scripts/setup_bench.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
requirements=$(.venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["bench"])')
if [ "${1:-}" = cpu ] && [ ! -e .venv-bench ]; then
    report=$(mktemp)
    trap 'rm -f "$report"' EXIT
    # shellcheck disable=SC2086 # one word a requirement
    set -- $requirements
    if ! .uv/bin/pip install --quiet --disable-pip-version-check --dry-run --no-deps --ignore-installed \
        --report "$report" "$1" > /dev/null 2>&1; then
        echo "bert-tfx: pip finds no $1"
        exit 3
    elif grep -q '"\(nvidia\|cuda\)-' "$report"; then
        echo "bert-tfx: the $1 that pip finds is of CUDA, 3 GB; a CPU build can be named to pip (find-links, an index)"
        exit 3
    fi
fi
echo "bert-tfx: setting up .venv-bench (once; torch is 200 MB, with CUDA 3 GB)"
.venv/bin/python -m venv --clear .venv-bench
packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# `addsitedir`, not the bare path: .venv's own .pth files (this project's) count too.
echo "import site; site.addsitedir('$(packages .venv)')" > "$(packages .venv-bench)/venv.pth"
# shellcheck disable=SC2086 # one word a requirement
.venv-bench/bin/pip install --quiet --disable-pip-version-check $requirements
echo "$wanted" > "$stamp"
