#!/bin/sh
# Debian's packages for bert-tfx, as root, in an image or a root filesystem of Debian 13.
# Usage: docker/packages.sh run           what running needs
#        docker/packages.sh build         what setting up needs beside
#        docker/packages.sh test          what `make test` needs beside: the page of the server is tested in Chromium
set -eu
case "$1" in
    run) packages="python3 python3-venv" ;;
    build) packages="python3 python3-venv ca-certificates" ;;
    test) packages="make git procps openssl chromium" ;;
    *) echo "docker/packages.sh: run, build or test, not '$1'" >&2; exit 2 ;;
esac
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # one word a package
apt-get install -qq --no-install-recommends $packages > /dev/null
rm -rf /var/lib/apt/lists/*
