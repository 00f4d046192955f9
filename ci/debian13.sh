#!/usr/bin/env bash
# The demo and the tests on Debian 13 (Python 3.13, TFX 1.21), in a root filesystem of its own. As root, on Debian or Ubuntu.
# Usage: ci/debian13.sh                              the demo, then all tests but the slow ones
#        ci/debian13.sh tests/unit/serving -k rest   some tests: arguments of pytest
#        ci/debian13.sh make demo                    any other command, in the checkout there
# DEBIAN13_ROOT    where it is made (/var/tmp/bert-tfx-debian13: 8 GB); a later run finds it there
# DEBIAN13_MIRROR  Debian's mirror; else the one that this machine's apt uses
# BERT_TFX_PYTHON  another Python there, such as a 3.12 that was copied into the root (docs/platforms.md)
# BERT_DATA_DIR    data of the tests, seen there too, read-only
# This machine's settings of pip and uv (indexes, certificates) hold there too; nothing of them is written down.
set -euo pipefail
cd "$(dirname "$0")/.."
root=${DEBIAN13_ROOT:-/var/tmp/bert-tfx-debian13}
checkout=/srv/bert-tfx

fail() { echo "ci/debian13.sh: $*" >&2; exit 2; }
[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot"
case "$root/" in "$PWD"/*) fail "DEBIAN13_ROOT=$root lies in the checkout: name a folder outside of it" ;; esac

if [ -z "${DEBIAN13_INSIDE:-}" ]; then
    # Namespaces of its own: no mount and no process outlives this script, however it ends.
    DEBIAN13_INSIDE=1 setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --propagation private "$0" "$@" &
    trap 'kill -KILL $!' INT TERM
    wait $!
    exit
fi
# One at a time: the checkout there is replaced.
exec 9> "$root.lock"
flock --nonblock 9 || { echo "debian13: waiting for another run in $root"; flock 9; }

# Makes $1 of this machine visible there, read-only, at the same place.
share() {
    [ -e "$1" ] || return 0
    if [ -d "$1" ]; then mkdir -p "$root$1"; else mkdir -p "$(dirname "$root$1")" && touch "$root$1"; fi
    mount --bind "$1" "$root$1"
    mount -o remount,bind,ro "$root$1"
}

# Files and folders that the settings of pip and uv name: certificates, indexes on disk.
named_by_settings() {
    { env | grep -E '^((PIP|UV)_.*(INDEX|LINKS|CERT)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)'
      cat /etc/pip.conf ~/.config/pip/pip.conf ~/.pip/pip.conf /etc/uv/uv.toml ~/.config/uv/uv.toml 2> /dev/null
    } | grep -oE "(file://|[ =\"'])/[^ \"',]+" | sed -E "s/^(file:\/\/|[ =\"'])//" | sort -u
}

mount_kernel() {
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

inside() {  # a command, in the checkout there
    chroot "$root" /usr/bin/env -C $checkout PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=/tmp UV_LINK_MODE=hardlink "$@"
}

copy_checkout() {  # what git knows, as it lies here; environments and runs there stay
    mkdir -p "$root$checkout"
    find "$root$checkout" -mindepth 1 -maxdepth 1 ! -name .venv ! -name .uv ! -name runs -exec rm -rf {} +
    git ls-files -z --cached --deduplicate | while IFS= read -r -d '' file; do
        if [ -e "$file" ]; then printf '%s\0' "$file"; fi
    done | tar --create --null --files-from=- | tar --extract --directory "$root$checkout"
}

[ -d "$root" ] || { echo "debian13: making $root (once)"; ci/debian13_root.sh "$root"; }
mount_kernel
copy_checkout
packages=$(sha256sum docker/packages.sh)
if [ "$(cat "$root/.bert-tfx-packages" 2> /dev/null)" != "$packages" ]; then
    echo "debian13: Debian's packages"
    for part in build run test; do inside docker/packages.sh $part; done
    echo "$packages" > "$root/.bert-tfx-packages"
fi
# After the packages: one of them writes the file of certificates.
for path in /etc/pip.conf ~/.config/pip ~/.pip /etc/uv ~/.config/uv $(named_by_settings) "${BERT_DATA_DIR:-}"; do
    share "$path"
done
inside scripts/setup.sh

if [ $# = 0 ]; then
    inside make demo ARGS="--run-dir runs/debian13"
    inside make test
elif [ -e "${1%%::*}" ] || [ "${1#-}" != "$1" ]; then
    inside .venv/bin/python -m pytest -m "not slow" "$@"
else
    inside "$@"
fi
