#!/usr/bin/env bash
# Builds docker/Dockerfile where there is no Docker engine, with Debian's buildah, and runs what it gives. As root.
# Usage: ci/images.sh        (docs/platforms.md; 12 GB in IMAGES_DIR, else /var/tmp/bert-tfx-images, removed at the end)
# The base is a root filesystem of debootstrap, and Beam's image a stand-in that holds a boot program: what is built here
# is the Dockerfile, not what Docker Hub has.
set -euo pipefail
cd "$(dirname "$0")/.."
store=${IMAGES_DIR:-/var/tmp/bert-tfx-images}
if [ -z "${IMAGES_INSIDE:-}" ]; then
    IMAGES_INSIDE=1 setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc --propagation private "$0" "$@" &
    trap 'kill -KILL $!' INT TERM
    wait $! && result=0 || result=$?
    # Its mounts went with the namespace.
    rm -rf "$store"
    exit $result
fi

command -v buildah > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends buildah > /dev/null; }
mkdir -p "$store"
buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver overlay "$@"; }

certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
ci/debian13_root.sh "$store/debian13"
base=$(buildah from scratch)
buildah copy --quiet "$base" "$store/debian13" /
# Only of this base: what a machine behind a proxy needs to reach the index.
buildah config --env SSL_CERT_FILE=/run/certificates.crt --env PIP_CERT=/run/certificates.crt "$base"
buildah commit --quiet --rm "$base" localhost/debian13
rm -rf "$store/debian13"

beam=$(buildah from scratch)
printf '#!/bin/sh\nexec python -m apache_beam.runners.worker.sdk_worker_main "$@"\n' > "$store/boot"
chmod 755 "$store/boot"
buildah copy --quiet "$beam" "$store/boot" /opt/apache/beam/boot
buildah commit --quiet --rm "$beam" localhost/beam

for target in worker pipeline serve; do
    buildah bud --quiet --layers --isolation chroot --volume "$certificates:/run/certificates.crt:ro" \
        --ignorefile docker/Dockerfile.dockerignore --file docker/Dockerfile --target $target \
        --build-arg BASE=localhost/debian13 --build-arg BEAM_SDK=localhost/beam --tag localhost/bert-tfx-$target .
done

in_image() {  # target, command: as the image's user
    local container
    container=$(buildah from "localhost/bert-tfx-$1")
    buildah run --isolation chroot "$container" -- "${@:2}"
    buildah rm "$container" > /dev/null
}
set -x  # what follows is the check
in_image pipeline bert-tfx --help > /dev/null
in_image pipeline sh -c 'test "$(id -u)" = 10001 && touch /data/x && ! touch /srv/bert-tfx/x 2> /dev/null && ! command -v g++'
in_image pipeline sh -c 'printf "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwords\n" > /data/vocab.txt &&
    echo words | bert-tfx tokenize --vocab /data/vocab.txt'
in_image pipeline python -c 'import tfx.v1, pipeline.dags.pipeline, serving.server'
in_image worker sh -c 'test -x /opt/apache/beam/boot && test "$RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT" = 1'
in_image worker python -c 'import apache_beam.runners.worker.sdk_worker_main, components.pretrain_example_gen.transforms'
in_image serve sh -c 'bert-tfx --help > /dev/null && python -c "import bert_keras.convert.onnx.answers, serving.server" &&
    ! python -c "import apache_beam" 2> /dev/null && ! python -c "import tensorflow.python" 2> /dev/null'
