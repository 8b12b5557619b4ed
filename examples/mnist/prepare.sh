#!/usr/bin/env bash
# prepare.sh FOLDER: MNIST's four idx files in a folder of this machine become csv and TFRecord on the cluster's storage.
source "$(dirname "$0")/settings.sh"
folder=$(cd "${1:?"name the folder with train-images-idx3-ubyte.gz and the three other files"}" && pwd)

for part in train t10k; do
    for format in csv tfrecord; do
        submit convert "file:$folder/$part-images-idx3-ubyte.gz" "$MNIST/$format/$part" --to "$format" --partitions "$PARTITIONS"
    done
done
