#!/usr/bin/env bash
# All tests but the slow ones, in parts with processes of their own: TensorFlow keeps what it compiled, and two processes
# for all parts grew to 15 GB. With --quick first: the tests that import neither TensorFlow nor TFX (tests/conftest.py).
# Other arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
run() { .venv/bin/python -m pytest -m "not slow" -n 2 --dist loadfile "$@"; }
if [ "${1:-}" = --quick ]; then
  shift
  run --quick -r fE --durations 5 --durations-min 5 tests/unit tests/contract "$@"
  exit
fi
result=5
for part in tests/unit/bert_keras "tests/unit/components tests/unit/pipeline tests/unit/benchmarks tests/contract" \
  tests/unit/serving tests/e2e; do
  # shellcheck disable=SC2086 # folders, one a word
  run --durations 5 --durations-min 5 $part "$@"
  status=$?
  # 5: none of this part was chosen; the result is 5 if none was of any.
  case "$status" in
    0) [ "$result" = 5 ] && result=0 ;;
    5) ;;
    2) exit 2 ;; # interrupted
    *) result=1 ;;
  esac
done
exit "$result"
