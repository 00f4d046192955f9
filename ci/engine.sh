# Read by flink.sh and spark.sh, which set `engine`: a Beam runner from Maven Central, and three machines to run it on. The
# machines are network namespaces on a bridge: 10.99.0.1 with this script, its command and the engine's master; .2 and .3 with
# the engine's workers. They share the disk. All ports are free there, and no process outlives the script.
set -euo pipefail
cd "$(dirname "$0")/.."
# The newest Beam whose runners are served as modules with all that they need; the fat job servers are not served everywhere.
beam=${BEAM_RUNNERS:-2.62.0}
home=${ENGINES_DIR:-/var/tmp/bert-tfx-engines}/$engine
asked=("$@")
[ $# -gt 0 ] || asked=(python -m pytest -q -rA tests/e2e/test_beam_engines.py -k "cluster or command_itself or killed")
export PATH=$PWD/.venv/bin:$PATH ENGINE_RUN=$home/run
export JDK_JAVA_OPTIONS="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 --add-exports=java.base/sun.nio.ch=ALL-UNNAMED
    $(printf ' --add-opens=java.base/%s=ALL-UNNAMED' java.{io,lang,lang.invoke,lang.reflect,net,nio,util,util.concurrent} sun.nio.ch)"

machines() {  # Maven coordinates -> $home/jars, once; then the script goes on in namespaces of its own
    if ! grep -qsx "$*" "$home/fetched"; then
        rm -rf "$home" && mkdir -p "$home"
        { echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>x</groupId>'
          echo '<artifactId>x</artifactId><version>1</version><dependencies>'
          # shellcheck disable=SC2048,SC2086  # group, artifact and version of each
          printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>' ${*//:/ }
          echo '</dependencies></project>'; } > "$home/pom.xml"
        mvn -q -B -f "$home/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$home/jars"
        echo "$*" > "$home/fetched"
    fi
    if [ -z "${ENGINE_INSIDE:-}" ]; then
        ENGINE_INSIDE=1 unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc "$0" "${asked[@]}" &
        trap 'kill -KILL $!' INT TERM
        wait $!
        exit
    fi
    rm -rf "$ENGINE_RUN" && mkdir -p "$ENGINE_RUN/tmp"
    ip link set lo up
    ip link add bridge type bridge && ip link set bridge up && ip address add 10.99.0.1/24 dev bridge
    for number in 2 3; do
        unshare --net sleep infinity &
        until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
        net[number]=--net=/proc/$!/ns/net
        ip link add "port$number" type veth peer name eth0 netns $! && ip link set "port$number" master bridge up
        nsenter "${net[number]}" sh -c "ip link set lo up; ip address add 10.99.0.$number/24 dev eth0; ip link set eth0 up"
    done
}

serve() {  # name, machine (1, 2, 3), command: started again whenever it ends; $ENGINE_RUN/NAME.pid and NAME.log
    local at=()
    [ "$2" = 1 ] || at=(nsenter "${net[$2]}")
    ( while :; do
          "${at[@]}" "${@:3}" >> "$ENGINE_RUN/$1.log" 2>&1 &
          echo $! > "$ENGINE_RUN/$1.pid"
          wait $! || true
          sleep 1
      done ) &
}

answers() {  # machine, port: waits for a service that has just been started
    for _ in {1..180}; do
        (: < "/dev/tcp/10.99.0.$1/$2") 2> /dev/null && return
        sleep 1
    done
    echo "$0: nothing listens on port $2 of machine $1 after 180 s: see $ENGINE_RUN" >&2
    exit 1
}

job_server_jar() {  # main class -> path of a file as Beam's own job server: it names the jars that it needs
    { echo "Main-Class: org.apache.beam.runners.$1"
      printf 'Class-Path:%s\n' "$(cd "$home" && printf ' %s' jars/*.jar)" | fold -w 70 | sed '1!s/^/ /'; } > "$ENGINE_RUN/manifest"
    jar --create --file "$home/job-server.jar" --manifest "$ENGINE_RUN/manifest" 2> /dev/null
    echo "$home/job-server.jar"
}
