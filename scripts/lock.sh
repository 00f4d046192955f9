#!/bin/sh
# Resolves pyproject.toml into one hashed lock for each supported Python. Usage: make lock
# No index address is written, so the locks work behind any mirror.
set -eu
cd "$(dirname "$0")/.."
lock() {  # python version, wheel platform
    .uv/bin/uv pip compile pyproject.toml --extra pipeline --extra keras-hub --extra kubeflow --group test --group lint \
        --quiet --no-config --python-version "$1" --python-platform "$2" --overrides requirements/not-installed.txt \
        --generate-hashes --no-emit-index-url --no-header \
        --output-file "requirements/py$(echo "$1" | tr -d .).txt"
}
lock 3.11 x86_64-manylinux_2_28
lock 3.12 x86_64-manylinux_2_40
lock 3.13 x86_64-manylinux_2_40
