# Spark's own cluster manager
spark-submit \
  --master spark://master:7077 \
  --deploy-mode client \
  --name resnet \
  --conf spark.executor.instances=3 \
  --conf spark.executor.cores=8 \
  --conf spark.task.cpus=8 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=32768m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executor.resource.gpu.amount=2 \
  --conf spark.executor.resource.gpu.discoveryScript=/opt/emberflow/gpus.sh \
  --conf spark.task.resource.gpu.amount=2 \
  --conf spark.cores.max=24 \
  train.py

# YARN
spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --name resnet \
  --conf spark.executor.instances=3 \
  --conf spark.executor.cores=8 \
  --conf spark.task.cpus=8 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=32768m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executor.resource.gpu.amount=2 \
  --conf spark.executor.resource.gpu.discoveryScript=/opt/emberflow/gpus.sh \
  --conf spark.task.resource.gpu.amount=2 \
  --conf spark.yarn.maxAppAttempts=6 \
  train.py

# Kubernetes
spark-submit \
  --master k8s://https://kubernetes.default.svc:443 \
  --deploy-mode cluster \
  --name resnet \
  --conf spark.executor.instances=3 \
  --conf spark.executor.cores=8 \
  --conf spark.task.cpus=8 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=32768m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executor.resource.gpu.amount=2 \
  --conf spark.executor.resource.gpu.discoveryScript=/opt/emberflow/gpus.sh \
  --conf spark.task.resource.gpu.amount=2 \
  --conf spark.executor.resource.gpu.vendor=nvidia.com \
  --conf spark.kubernetes.namespace=default \
  --conf spark.kubernetes.container.image=registry.example.com/resnet:gpu \
  --conf spark.kubernetes.driver.volumes.hostPath.images.mount.path=/images \
  --conf spark.kubernetes.driver.volumes.hostPath.images.mount.readOnly=false \
  --conf spark.kubernetes.driver.volumes.hostPath.images.options.path=/mnt/images \
  --conf spark.kubernetes.executor.volumes.hostPath.images.mount.path=/images \
  --conf spark.kubernetes.executor.volumes.hostPath.images.mount.readOnly=false \
  --conf spark.kubernetes.executor.volumes.hostPath.images.options.path=/mnt/images \
  local:///app/train.py
