#!/usr/bin/env bash
# A Flink cluster of three machines in this one: a job manager with Beam's job server, and two task managers with pools of workers.
# Usage: ci/flink.sh               the tests that need such a cluster
#        ci/flink.sh COMMAND ...   any other command beside it; the arguments of Beam for it are in $ENGINE_ARGS
# ENGINES_DIR   where jars and logs go (/var/tmp/bert-tfx-engines); needs Java 17, Maven, iproute2 and user namespaces
# SLOTS         slots of a task manager, and worker processes for them (1)
engine=flink-1.19
. "$(dirname "$0")/engine.sh"
machines "org.apache.beam:beam-runners-$engine:$beam" org.slf4j:slf4j-simple:1.7.30

memory=taskmanager.memory
# Beam's jars are those of the cluster: with a class loader a job, Beam ends its workers after each step, and starts others.
printf '%s: %s\n' jobmanager.rpc.address 10.99.0.1 rest.address 10.99.0.1 classloader.resolve-order parent-first \
    restart-strategy.type fixed-delay restart-strategy.fixed-delay.attempts 30 restart-strategy.fixed-delay.delay '5 s' \
    heartbeat.timeout 20000 taskmanager.numberOfTaskSlots "${SLOTS:-1}" taskmanager.cpu.cores 1 io.tmp.dirs "$ENGINE_RUN/tmp" \
    $memory.framework.heap.size 128m $memory.framework.off-heap.size 128m $memory.task.heap.size 512m \
    $memory.task.off-heap.size 64m $memory.managed.size 256m $memory.network.min 1g $memory.network.max 1g \
    $memory.jvm-metaspace.size 256m $memory.jvm-overhead.min 192m $memory.jvm-overhead.max 192m > "$ENGINE_RUN/config.yaml"
java=(java -Xmx768m -XX:MaxDirectMemorySize=2g -cp "$home/jars/*")
serve job-manager 1 "${java[@]}" org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint --configDir "$ENGINE_RUN"
serve job-server 1 "${java[@]}" org.apache.beam.runners.flink.FlinkJobServerDriver --job-host=10.99.0.1 \
    --flink-master=http://10.99.0.1:8081 --artifacts-dir="$ENGINE_RUN/artifacts"
for machine in 2 3; do
    serve "engine-$machine" $machine "${java[@]}" org.apache.flink.runtime.taskexecutor.TaskManagerRunner \
        --configDir "$ENGINE_RUN" -Dtaskmanager.host=10.99.0.$machine
    serve "worker-pool-$machine" $machine python -m apache_beam.runners.worker.worker_pool_main --service_port=50000
done
answers 1 8081; answers 1 8099; answers 2 50000; answers 3 50000
export ENGINE_ARGS="--runner=PortableRunner --job_endpoint=10.99.0.1:8099 --environment_type=EXTERNAL
    --environment_config=localhost:50000 --environment_cache_millis=300000 --parallelism=$((2 * ${SLOTS:-1})) --sdk_worker_parallelism=${SLOTS:-1}"
export LOOPBACK_ARGS="--runner=FlinkRunner --flink_master=[local] --flink_job_server_jar=$(job_server_jar flink.FlinkJobServerDriver)
    --environment_type=LOOPBACK --parallelism=2"
"${asked[@]}"
