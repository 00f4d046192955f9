#!/bin/sh
# Resolves the group `airflow` of pyproject.toml into the hashed lock of .venv-airflow. Usage: make lock
set -eu
cd "$(dirname "$0")/.."
.uv/bin/uv pip compile --group airflow --quiet --no-config --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
    --generate-hashes --no-emit-index-url --no-header --output-file requirements/airflow-py311.txt > /dev/null
