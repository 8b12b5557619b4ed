#!/usr/bin/env bash
# Spark reads the csv files and sends the rows to the workers. More options may follow, such as --epochs 5 --continue.
source "$(dirname "$0")/settings.sh"

submit train "$program" "$MNIST/csv/train" "$MNIST/with_spark/export" \
    --columns "label long, image float[784]" --features image --label label \
    --workers "$WORKERS" --batch-size 64 --epochs "$EPOCHS" \
    --checkpoint-dir "$MNIST/with_spark/checkpoints" --tensorboard-dir "$MNIST/with_spark/events" "$@"
