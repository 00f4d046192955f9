#!/bin/sh
# Fills .gpu, which git ignores, with what benchmarks/gpu/gpu.py needs on a machine that has JAX, CUDA and NumPy, and no
# network: examples of 512 tokens, and the other packages that it imports, in the lock's releases.
# Usage: benchmarks/gpu/carry.sh CORPUS 3.12          the machine's Python, 3.11 to 3.13; after `make setup`
set -eu
cd "$(dirname "$0")/../.."
corpus=$1 version=$2
lock=requirements/py$(echo "$version" | tr -d .).txt
packages="absl-py annotated-doc annotated-types click etils filelock fsspec google-crc32c h5py keras markdown-it-py mdurl
    namex optree packaging protobuf psutil pydantic pydantic-core pygments rich sentencepiece shellingham tensorboard
    tokenizers typer typing-extensions typing-inspection zipp"
rm -rf .gpu
mkdir -p .gpu/wheels
awk -v names="$packages" 'BEGIN { split(names, list); for (i in list) wanted[list[i]] }
    /^[a-z]/ { split($0, parts, "=="); keep = parts[1] in wanted } keep && !/^ *#/' "$lock" > .gpu/requirements.txt
.uv/bin/pip download --quiet --no-deps --require-hashes --only-binary :all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
    --platform manylinux2014_x86_64 --platform any --dest .gpu/wheels --requirement .gpu/requirements.txt
.venv/bin/bert-tfx examples --corpus "$corpus" --output .gpu/examples --set examples.max_seq_length=512 \
    --set examples.masking.when=dynamic --set examples.masking.max_predictions_per_seq=80 --set examples.dupe_factor=1
du -sh .gpu/wheels .gpu/examples
