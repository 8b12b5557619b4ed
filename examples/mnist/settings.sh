# Where the walk-through runs, and where its files are. Each value can be set in the environment:
#
#   MASTER=yarn ./train_with_spark.sh
#   MASTER=spark://my-master:7077 MNIST=s3a://my-bucket/mnist ./train_with_spark.sh
#   MASTER='local[3]' ./train_with_spark.sh
set -euo pipefail

MASTER=${MASTER:-yarn}
MNIST=${MNIST:-mnist}     # without a scheme: on the cluster's default file system, below your home there
WORKERS=${WORKERS:-2}
EPOCHS=${EPOCHS:-3}
PARTITIONS=${PARTITIONS:-10}

# Nodes have a slot each: two workers, and the evaluator of train_with_files.sh. TensorFlow's memory is outside of the JVM's.
read -r -d '' -a submit_options <<< "${SUBMIT_OPTIONS:---num-executors 3 --executor-cores 1 --executor-memory 1g --conf spark.executor.memoryOverhead=2g}" || true # it is at its end
program=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/model.py

submit() {
    spark-submit --master "$MASTER" --conf spark.log.level=WARN "${submit_options[@]}" "$(emberflow --submit-file)" "$@"
}
