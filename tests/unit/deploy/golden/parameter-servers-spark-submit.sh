# Spark's own cluster manager
spark-submit \
  --master spark://master:7077 \
  --deploy-mode client \
  --name ads \
  --conf spark.executor.instances=6 \
  --conf spark.executor.cores=1 \
  --conf spark.task.cpus=1 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=8192m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executorEnv.DATA_DIR=/data/ads \
  --conf spark.executorEnv.NUM_TF_PS=2 \
  --conf spark.cores.max=6 \
  train.py --name=ads '--price=$(PRICE) $5'

# YARN
spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --name ads \
  --conf spark.executor.instances=6 \
  --conf spark.executor.cores=1 \
  --conf spark.task.cpus=1 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=8192m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executorEnv.DATA_DIR=/data/ads \
  --conf spark.executorEnv.NUM_TF_PS=2 \
  --conf spark.yarn.appMasterEnv.DATA_DIR=/data/ads \
  --conf spark.yarn.appMasterEnv.NUM_TF_PS=2 \
  --conf spark.yarn.maxAppAttempts=1 \
  train.py --name=ads '--price=$(PRICE) $5'

# Kubernetes
spark-submit \
  --master k8s://https://kubernetes.default.svc:443 \
  --deploy-mode cluster \
  --name ads \
  --conf spark.executor.instances=6 \
  --conf spark.executor.cores=1 \
  --conf spark.task.cpus=1 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=8192m \
  --conf spark.dynamicAllocation.enabled=false \
  --conf spark.executorEnv.DATA_DIR=/data/ads \
  --conf spark.executorEnv.NUM_TF_PS=2 \
  --conf spark.kubernetes.namespace=ranking \
  --conf spark.kubernetes.container.image=registry.example.com/ads:7 \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=trainer \
  --conf spark.kubernetes.driver.secrets.gcs=/secrets/gcs \
  --conf spark.kubernetes.driver.volumes.persistentVolumeClaim.data.mount.path=/data \
  --conf spark.kubernetes.driver.volumes.persistentVolumeClaim.data.mount.readOnly=true \
  --conf spark.kubernetes.driver.volumes.persistentVolumeClaim.data.options.claimName=ads-data \
  --conf spark.kubernetes.driver.volumes.emptyDir.scratch.mount.path=/scratch \
  --conf spark.kubernetes.driver.volumes.emptyDir.scratch.mount.readOnly=false \
  --conf spark.kubernetes.executor.secrets.gcs=/secrets/gcs \
  --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.data.mount.path=/data \
  --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.data.mount.readOnly=true \
  --conf spark.kubernetes.executor.volumes.persistentVolumeClaim.data.options.claimName=ads-data \
  --conf spark.kubernetes.executor.volumes.emptyDir.scratch.mount.path=/scratch \
  --conf spark.kubernetes.executor.volumes.emptyDir.scratch.mount.readOnly=false \
  --conf spark.kubernetes.driverEnv.DATA_DIR=/data/ads \
  --conf spark.kubernetes.driverEnv.NUM_TF_PS=2 \
  local:///srv/ads/train.py --name=ads '--price=$(PRICE) $5'
