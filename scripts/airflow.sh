#!/bin/sh
# Sets up Airflow and its databases, and runs the demo pipeline as its DAG: scripts/airflow_demo.py says how.
# Usage: scripts/airflow.sh [OPTIONS]        (the Makefile calls it)
set -eu
cd "$(dirname "$0")/.."
if ! command -v mariadbd > /dev/null || ! ls /usr/lib/postgresql/*/bin/initdb > /dev/null 2>&1; then
    if [ "$(id -u)" != 0 ]; then
        echo "bert-tfx: needed: apt-get install postgresql mariadb-server" >&2
        exit 2
    fi
    echo "bert-tfx: installing PostgreSQL and MariaDB (Debian's packages)"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql mariadb-server > /dev/null
fi
scripts/setup_beside.sh airflow
exec .venv/bin/python -m scripts.airflow_demo "$@"
