#!/bin/sh
# Makes .venv from the hashed lock; does nothing when .venv already matches it.
# Usage: scripts/setup.sh           (the Makefile calls it; BERT_TFX_PYTHON names a Python to use)
#        scripts/setup.sh image     from the image's lock: without what tests and lint need (docker/Dockerfile calls it)
#        scripts/setup.sh serve     from the lock of the server alone, with TensorFlow's messages (docker/Dockerfile, too)
set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8

# Prints "minor" (e.g. 311) if the interpreter runs and a TFX release has wheels for it here; else why not, or nothing.
# Every candidate is run: a pyenv shim may exist and refuse. ml-metadata's wheels for TFX 1.21 are tagged
# manylinux_2_39; those for TFX 1.16 run on anything from glibc 2.17.
usable() {
    "$1" - 2>/dev/null <<'PY' || true
import ensurepip, os, sys, venv
glibc = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
version = sys.version_info[:2]
old = tuple(int(n) for n in glibc.split(".")[:2]) < (2, 39)
if version in ((3, 12), (3, 13)) and old:
    print("Python 3.%d needs glibc 2.39 (TFX 1.21's wheels), and here it is %s" % (version[1], glibc))
elif version in ((3, 11), (3, 12), (3, 13)):
    print("%d%d" % version)
PY
}

find_python() {
    refused=
    for candidate in ${BERT_TFX_PYTHON:-python3.11 /usr/bin/python3.11 python3.13 python3.12 python3}; do
        minor=$(usable "$candidate")
        case "$minor" in
            3*) python=$candidate; return ;;
            ?*) refused="$candidate: $minor" ;;
        esac
    done
    if [ -n "$refused" ]; then
        echo "bert-tfx: $refused; install Python 3.11, with venv, or name one: BERT_TFX_PYTHON=python3.11" >&2
        exit 1
    fi
    cat >&2 <<MESSAGE
bert-tfx: no usable Python found${BERT_TFX_PYTHON:+ (BERT_TFX_PYTHON=$BERT_TFX_PYTHON)}. Needed, with its venv module, one of
  Python 3.11                 on Debian 12, Ubuntu 22.04 and later (TFX 1.16)
  Python 3.12 or 3.13         where glibc is 2.39 or newer: Debian 13, Ubuntu 24.04 (TFX 1.21)
Debian, Ubuntu:   apt-get install python3 python3-venv   (on Debian 12 that is 3.11, on Debian 13 it is 3.13)
With pyenv:       pyenv install 3.11 && BERT_TFX_PYTHON="\$(pyenv prefix 3.11)/bin/python" make demo
MESSAGE
    exit 1
}

find_python
lock=requirements/py$minor${1:+-$1}.txt
stamp=.venv/.made-from
wanted="$(cat "$lock" scripts/setup.sh | sha256sum | cut -d' ' -f1) $minor"
package=$(sha256sum pyproject.toml | cut -d' ' -f1)
made=$(cat "$stamp" 2>/dev/null || true)
if [ "$made" = "$wanted $package" ]; then exit 0; fi

echo "bert-tfx: setting up .venv with $python from $lock (once; about a minute)"
if [ "$(.uv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$UV_VERSION" ]; then
    rm -rf .uv
    "$python" -m venv .uv
    .uv/bin/pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi
# uv ignores the upper bound of Requires-Python (TFX 1.16 says < 3.11, and runs on 3.11); pip does not.
# UV_LINK_MODE: a cache on another file system is copied from, without a warning for each file.
export UV_PYTHON_DOWNLOADS=never UV_LINK_MODE="${UV_LINK_MODE:-copy}" VIRTUAL_ENV="$PWD/.venv"
rm -f "$stamp"
# Of another pyproject.toml with the same lock only the package's own metadata is installed again.
if [ "${made% *}" != "$wanted" ]; then
    .uv/bin/uv venv --quiet --clear --python "$(command -v "$python")" .venv
    .uv/bin/uv pip sync --quiet --require-hashes "$lock"
    if [ "${1:-}" = serve ]; then scripts/tensorflow_messages.sh "requirements/py$minor.txt" .venv; fi
fi
.uv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
echo "$wanted $package" > "$stamp"
