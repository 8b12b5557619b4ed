#!/usr/bin/env bash
# Each task reads its own share of the TFRecord files, scores it, and writes a file of lines: label, prediction.
source "$(dirname "$0")/settings.sh"

submit predict "$MNIST/tfrecord/t10k" "$MNIST/with_files/export" "$MNIST/with_files/predictions" \
    --format tfrecord --input-mode files --tasks "$WORKERS" --line "{label} {prediction}" "$@"
