#!/bin/sh
# Runs a benchmark as it was when a page's figures were measured: in a worktree of that commit, with its environments.
# Usage: benchmarks/as_measured.sh COMMIT MODULE [ARGUMENTS...]
#        benchmarks/as_measured.sh 9b44bdc benchmarks.finetuning.finetune_results run /tmp/results
set -eu
commit=$1
shift
tree="$(dirname "$0")/../.as-measured/$commit"
[ -d "$tree" ] || git worktree add --detach "$tree" "$commit"
cd "$tree"
scripts/setup.sh
scripts/setup_bench.sh
PYTHONPATH=$PWD exec .venv-bench/bin/python -m "$@"
