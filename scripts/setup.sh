#!/bin/sh
# Makes .venv from the hashed lock; does nothing when .venv already matches it.
# Usage: scripts/setup.sh        (the Makefile calls it; BERT_TFX_PYTHON names a Python to use)
set -eu
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8

# Prints "minor" (e.g. 311) if the interpreter runs and a TFX release has wheels for it here, else nothing.
# Every candidate is run: a pyenv shim may exist and refuse. ml-metadata and TFDV, as TFX 1.21 needs
# them, are built against glibc 2.38; the 1.16 ones run on anything from 2.17.
usable() {
    "$1" - 2>/dev/null <<'PY' || true
import ensurepip, os, sys, venv
glibc = tuple(int(n) for n in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2])
version = sys.version_info[:2]
if version == (3, 11) or (version in ((3, 12), (3, 13)) and glibc >= (2, 38)):
    print("%d%d" % version)
PY
}

find_python() {
    for candidate in ${BERT_TFX_PYTHON:-python3.11 /usr/bin/python3.11 python3.13 python3.12 python3}; do
        minor=$(usable "$candidate")
        if [ -n "$minor" ]; then python=$candidate; return; fi
    done
    cat >&2 <<MESSAGE
bert-tfx: no usable Python found${BERT_TFX_PYTHON:+ (BERT_TFX_PYTHON=$BERT_TFX_PYTHON)}. Needed, with its venv module, one of
  Python 3.11                 on Debian 12, Ubuntu 22.04 and later (TFX 1.16)
  Python 3.12 or 3.13         where glibc is 2.38 or newer: Debian 13, Ubuntu 24.04 (TFX 1.21)
Debian, Ubuntu:   apt-get install python3 python3-venv   (on Debian 12 that is 3.11, on Debian 13 it is 3.13)
With pyenv:       pyenv install 3.11 && BERT_TFX_PYTHON="\$(pyenv prefix 3.11)/bin/python" make demo
MESSAGE
    exit 1
}

find_python
lock=requirements/py$minor.txt
stamp=.venv/.made-from
wanted="$(cat "$lock" pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1) $minor"
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi

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
.uv/bin/uv venv --quiet --clear --python "$(command -v "$python")" .venv
.uv/bin/uv pip sync --quiet --require-hashes "$lock"
.uv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .
echo "$wanted" > "$stamp"
