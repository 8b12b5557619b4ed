#!/bin/bash
# Runs what it is given. Spark on Kubernetes gives `driver ARGS` or `executor`, and says the rest by variables.
set -euo pipefail

# The options that Spark passes to an executor's JVM, SPARK_JAVA_OPT_0 and so on, in their order.
java_options() {
  local number name
  for ((number = 0; ; number++)); do
    name="SPARK_JAVA_OPT_$number"
    [[ -v $name ]] || return 0
    printf '%s\n' "${!name}"
  done
}

class_path="${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}"

case "${1:-}" in
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  executor)
    mapfile -t options < <(java_options)
    exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *) exec "$@" ;;
esac
