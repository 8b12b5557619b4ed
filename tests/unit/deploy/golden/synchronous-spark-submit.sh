# Spark's own cluster manager
spark-submit \
  --master spark://master:7077 \
  --deploy-mode client \
  --name mnist \
  --conf spark.executor.instances=2 \
  --conf spark.executor.cores=2 \
  --conf spark.task.cpus=2 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=4096m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.cores.max=4 \
  train.py --epochs 3

# YARN
spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --name mnist \
  --conf spark.executor.instances=2 \
  --conf spark.executor.cores=2 \
  --conf spark.task.cpus=2 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=4096m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.yarn.maxAppAttempts=4 \
  train.py --epochs 3

# Kubernetes
spark-submit \
  --master k8s://https://kubernetes.default.svc:443 \
  --deploy-mode cluster \
  --name mnist \
  --conf spark.executor.instances=2 \
  --conf spark.executor.cores=2 \
  --conf spark.task.cpus=2 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=4096m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.kubernetes.namespace=default \
  --conf spark.kubernetes.container.image=registry.example.com/mnist:1 \
  local:///app/train.py --epochs 3
