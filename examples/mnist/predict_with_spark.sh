#!/usr/bin/env bash
# Spark reads the csv files, the model scores the rows, Spark writes a line of text for each.
source "$(dirname "$0")/settings.sh"

submit predict "$MNIST/csv/t10k" "$MNIST/with_spark/export" "$MNIST/with_spark/predictions" \
    --columns "label long, image float[784]" --line "{now} Label: {label}, Prediction: {prediction}" "$@"
