#!/bin/sh
# The speedrun on one GPU: elapsed seconds to a held-out loss of 3.2 (perplexity 24.5) on the demo's examples, three seeds.
# Usage: benchmarks/speedrun/h100.sh EXAMPLES OUT [--set training.learning_rate=5e-3 ...]
#        needs JAX with CUDA (docs/gpus.md#install); without TensorFlow: benchmarks/gpu/gpu.md#carry-and-run
set -eu
cd "$(dirname "$0")/../.."
examples=$1 out=$2
shift 2
speedrun() { KERAS_BACKEND=jax "${PYTHON:-.venv/bin/python}" -m benchmarks.speedrun.speedrun "$@"; }
speedrun run "$examples" "$out" --name gpu --elapsed --target 3.2 --seeds 1 2 3 --every 100 --set training.backend=jax \
    --set training.mixed_precision=mixed_bfloat16 --set training.num_train_steps=1500 "$@"
speedrun table "$out" --reference gpu --target 3.2
