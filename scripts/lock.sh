#!/bin/sh
# Resolves pyproject.toml into one hashed lock for each supported Python, the images' parts of the last one, what the
# GPU's image adds, Airflow's, others' clients' and the site's.
# Usage: scripts/lock.sh                           (make lock)
#        scripts/lock.sh PYTHON PLATFORM FILE      one resolution, into FILE
# No index address is written, so the locks work behind any mirror.
set -eu
cd "$(dirname "$0")/.."
EVERYTHING="--extra kubeflow --extra jax --group test --group lint"
resolve() {  # python version, wheel platform, file, what is resolved
    python=$1 platform=$2 file=$3
    shift 3
    .uv/bin/uv pip compile --quiet --no-config --python-version "$python" --python-platform "$platform" \
        --generate-hashes --no-emit-index-url --no-header --output-file "$file" "$@" > /dev/null
    { .uv/bin/python scripts/lock_header.py; grep -v '^# Made by' "$file"; } > "$file.unfinished"
    mv "$file.unfinished" "$file"
}
lock() {  # python version, wheel platform, file, further arguments
    resolve "$@" pyproject.toml --extra pipeline --extra keras-hub --extra onnx --overrides requirements/overrides.txt
}
if [ $# -gt 0 ]; then lock "$@" $EVERYTHING; exit; fi
lock 3.11 x86_64-manylinux_2_28 requirements/py311.txt $EVERYTHING
lock 3.12 x86_64-manylinux_2_40 requirements/py312.txt $EVERYTHING
lock 3.13 x86_64-manylinux_2_40 requirements/py313.txt $EVERYTHING
lock 3.13 x86_64-manylinux_2_40 requirements/py313-image.txt --constraints requirements/py313.txt
resolve 3.13 x86_64-manylinux_2_40 requirements/py313-serve.txt pyproject.toml --extra serve \
    --overrides requirements/serve-overrides.txt --constraints requirements/py313.txt
resolve 3.13 x86_64-manylinux_2_40 requirements/py313-gpu.txt --group gpu --constraints requirements/py313.txt
resolve 3.11 x86_64-manylinux_2_28 requirements/airflow-py311.txt --group airflow
resolve 3.11 x86_64-manylinux_2_28 requirements/clients-py311.txt --group clients
resolve 3.11 x86_64-manylinux_2_28 requirements/old-clients-py311.txt --group old-clients
resolve 3.11 x86_64-manylinux_2_28 requirements/docs.txt --group docs
