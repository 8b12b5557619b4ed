#!/usr/bin/env bash
# The nodes read the TFRecord files themselves; one more node evaluates each checkpoint on the test images.
source "$(dirname "$0")/settings.sh"

submit train "$program" "$MNIST/tfrecord/train" "$MNIST/with_files/export" \
    --format tfrecord --input-mode files --features image --label label \
    --workers "$WORKERS" --batch-size 64 --epochs "$EPOCHS" --evaluation "$MNIST/tfrecord/t10k" \
    --checkpoint-dir "$MNIST/with_files/checkpoints" --tensorboard-dir "$MNIST/with_files/events" "$@"
