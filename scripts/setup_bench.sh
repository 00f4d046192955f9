#!/bin/sh
# Makes .venv-bench: all of .venv, and what it is compared with (the group `bench` of pyproject.toml) on top.
# Usage: scripts/setup_bench.sh        (the Makefile calls it)
# By pip, not uv: where a machine's pip is told of a CPU build of torch (find-links, an index), that is the one wanted.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv-bench/.made-from
wanted=$(cat .venv/.made-from scripts/setup_bench.sh | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
echo "bert-tfx: setting up .venv-bench (once; torch is 200 MB, with CUDA 3 GB)"
.venv/bin/python -m venv --clear .venv-bench
packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# `addsitedir`, not the bare path: .venv's own .pth files (this project's) count too.
echo "import site; site.addsitedir('$(packages .venv)')" > "$(packages .venv-bench)/venv.pth"
requirements=$(.venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["bench"])')
# shellcheck disable=SC2086 # one word a requirement
.venv-bench/bin/pip install --quiet --disable-pip-version-check $requirements
echo "$wanted" > "$stamp"
