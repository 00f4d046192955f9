#!/bin/sh
# Makes FOLDER a root filesystem of Debian 13, by debootstrap. As root, on Debian or Ubuntu.
# Usage: ci/debian13_root.sh FOLDER        (ci/debian13.sh and ci/images.sh call it)
# DEBIAN13_MIRROR  Debian's mirror; else the one that this machine's apt uses
set -eu
fail() { echo "ci/debian13_root.sh: $*" >&2; exit 2; }

mirror=${DEBIAN13_MIRROR:-$(
    # Of the archive, not of its security updates.
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2> /dev/null |
        sed -nE 's/^(URIs:|deb( \[[^]]*\])?) +([^ ]+\/debian)\/?( .*)?$/\3/p' | head -n 1
)}
[ -n "$mirror" ] || fail "no mirror of Debian in /etc/apt: name one with DEBIAN13_MIRROR"
command -v debootstrap > /dev/null || { apt-get update -qq && apt-get install -y -qq debootstrap > /dev/null; }
# What an earlier run did not finish holds no mounts: they went with its namespace.
rm -rf "$1.unfinished"
mkdir -p "$1.unfinished"
unshare --mount --propagation private \
    debootstrap --variant=minbase trixie "$1.unfinished" "$mirror" > "$1.log" 2>&1 ||
    fail "debootstrap failed: $(tail -n 1 "$1.log"); all of it is in $1.log"
mv "$1.unfinished" "$1"
rm "$1.log"
