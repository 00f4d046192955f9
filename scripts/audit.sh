#!/bin/sh
# Known vulnerabilities of every locked package, of both stacks. Needs PyPI's advisories, or OSV's: a mirror has none.
# Usage: scripts/audit.sh [ARGS OF pip-audit]      (make audit; ARGS="--vulnerability-service osv" asks OSV)
# Ends with 0: none known; 1: the table above names some; 2: they could not be asked for.
set -u
cd "$(dirname "$0")/.."
said=$(mktemp)
trap 'rm -f "$said"' EXIT
result=0
for lock in requirements/py311.txt requirements/py312.txt requirements/py313.txt; do
    # --strict: without it, packages that nobody knows anything about count as good.
    if ! UV_PYTHON_DOWNLOADS=never .uv/bin/uv tool run --quiet pip-audit==2.10.1 --strict --requirement "$lock" \
        --no-deps --disable-pip --progress-spinner off "$@" 2> "$said"; then
        if ! grep -q '^Found .* known vulnerabilit' "$said"; then
            tail -n 1 "$said" | cut -c 1-200 >&2
            echo "bert-tfx: $lock was not audited: the advisories do not answer here; run it where PyPI itself does" >&2
            exit 2
        fi
        cat "$said" >&2
        result=1
    fi
done
exit $result
