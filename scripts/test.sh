#!/usr/bin/env bash
# All tests but the slow ones, in a queue over two processes: first those of the library, then the others in new processes,
# since each keeps the graphs of its tests (11 GB at the end of one queue of all); three, for many of these wait for servers
# and for the package index. With --quick first: the tests that import neither TensorFlow nor TFX. tests/conftest.py chooses
# and orders them; other arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
queue() { # number of processes, arguments
  .venv/bin/python -m pytest -m "not slow" -n "$1" --dist loadfile --durations 10 --durations-min 5 "${@:2}"
}
if [ "${1:-}" = --quick ]; then
  queue 2 --quick -r fE tests/unit tests/contract "${@:2}"
  exit
fi
queue 2 tests/unit/bert_keras "$@"
library=$?
queue 3 --ignore tests/unit/bert_keras tests/unit tests/contract tests/e2e "$@"
others=$?
# 5: no test of a queue was chosen.
[ "$library" = 5 ] && [ "$others" != 5 ] && exit "$others"
[ "$others" = 5 ] && exit "$library"
exit $((library > others ? library : others))
