#!/bin/sh
# Adds TensorFlow's messages (protocol buffers, 3 MB) without TensorFlow, for the environment of the server alone.
# Usage: scripts/tensorflow_messages.sh LOCK VENV     LOCK has the release of tensorflow (scripts/setup.sh serve calls it)
set -eu
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
awk '/^[a-z]/ { wanted = /^tensorflow==/ } wanted' "$1" > "$work/release.txt"
.uv/bin/uv pip install --quiet --no-deps --require-hashes --python "$2" --target "$work/all" --requirement "$work/release.txt"
packages=$("$2/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
(cd "$work/all" && find tensorflow -name '*_pb2.py' | tar -c -T - -f -) | tar -x -C "$packages" -f -
