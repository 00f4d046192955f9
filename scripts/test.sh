#!/usr/bin/env bash
# All tests but the slow ones, in one queue over two processes. With --quick first: the tests that import neither
# TensorFlow nor TFX. tests/conftest.py chooses and orders them; other arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
queue=(tests/unit tests/contract tests/e2e)
if [ "${1:-}" = --quick ]; then
  shift
  queue=(--quick -r fE tests/unit tests/contract)
fi
exec .venv/bin/python -m pytest -m "not slow" -n 2 --dist loadfile --durations 10 --durations-min 5 "${queue[@]}" "$@"
