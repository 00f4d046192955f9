#!/usr/bin/env bash
# A Spark standalone cluster of three machines in this one: a master with Beam's job server, and two workers with pools of SDK workers.
# Usage, places and needs: as ci/flink.sh
# SLOTS   cores of a worker, and of its executor (1)
engine=spark-3
. "$(dirname "$0")/engine.sh"
machines "org.apache.beam:beam-runners-$engine:$beam" org.apache.spark:spark-core_2.12:3.5.7 \
    org.apache.spark:spark-streaming_2.12:3.5.7 org.slf4j:slf4j-api:2.0.7

export SPARK_HOME=$home SPARK_SCALA_VERSION=2.12
java=(java -Xmx768m -cp "$home/jars/*" -Dspark.executor.memory=768m -Dspark.default.parallelism=$((2 * ${SLOTS:-1}))
    # A pool that died needs seconds to come back, and Spark repeats a task at once: after four failures on the other machine.
    # 6 is below 2 x 4: a bad record ends the job before all executors are excluded. Spark would then end one, and lose its data.
    -Dspark.excludeOnFailure.enabled=true -Dspark.task.maxFailures=6
    -Dspark.excludeOnFailure.task.maxTaskAttemptsPerExecutor=4 -Dspark.excludeOnFailure.task.maxTaskAttemptsPerNode=4
    # Beam does not stop the context of a failed job, and a second one is refused: all jobs share one.
    -Dbeam.spark.test.reuseSparkContext=true
    -Dspark.local.dir="$ENGINE_RUN/tmp" -Dspark.ui.enabled=false)
spark=org.apache.spark.deploy
serve master 1 "${java[@]}" $spark.master.Master --host 10.99.0.1 --port 7077
serve job-server 1 env SPARK_LOCAL_IP=10.99.0.1 "${java[@]}" org.apache.beam.runners.spark.SparkJobServerDriver \
    --job-host=10.99.0.1 --spark-master-url=spark://10.99.0.1:7077 --artifacts-dir="$ENGINE_RUN/artifacts"
for machine in 2 3; do
    serve "engine-$machine" $machine env SPARK_LOCAL_IP=10.99.0.$machine "${java[@]}" $spark.worker.Worker \
        --host 10.99.0.$machine --cores "${SLOTS:-1}" --memory 1g --work-dir "$ENGINE_RUN/work-$machine" spark://10.99.0.1:7077
    serve "worker-pool-$machine" $machine python -m apache_beam.runners.worker.worker_pool_main --service_port=50000
done
answers 1 7077; answers 1 8099; answers 2 50000; answers 3 50000
export ENGINE_ARGS="--runner=PortableRunner --job_endpoint=10.99.0.1:8099 --environment_type=EXTERNAL
    --environment_config=localhost:50000 --environment_cache_millis=300000"
export LOOPBACK_ARGS="--runner=SparkRunner --spark_master_url=local[2] --spark_job_server_jar=$(job_server_jar spark.SparkJobServerDriver)
    --environment_type=LOOPBACK"
"${asked[@]}"
