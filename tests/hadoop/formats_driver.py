"""A driver with Hadoop's TFRecord formats: python -m tests.hadoop.formats_driver JAR FOLDER."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import emberflow as ef

READS = "org.tensorflow.hadoop.io.TFRecordFileInputFormat"
WRITES = "org.tensorflow.hadoop.io.TFRecordFileOutputFormat"
BYTES, NOTHING = "org.apache.hadoop.io.BytesWritable", "org.apache.hadoop.io.NullWritable"
CODECS = {
    "none": "",
    "gzip": "org.apache.hadoop.io.compress.GzipCodec",
    "zlib": "org.apache.hadoop.io.compress.DefaultCodec",
}
ROWS = 100
SCHEMA = "label long, image array<float>"


def labels_of(spark: Any, records: list[bytes]) -> list[int]:
    frame = spark.createDataFrame([(record,) for record in records], "record binary")
    parsed = frame.select(ef.tfrecord.from_example("record", SCHEMA).alias("row"))
    return sorted(row["label"] for row in parsed.select("row.label").collect())


def main(jar: str, folder: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.jars", jar).getOrCreate()
    rows = (
        spark.range(ROWS).selectExpr("id as label", "array(cast(id as float), 0.5f) as image").repartition(3)
    )
    found = {}
    for compression, codec in CODECS.items():
        ours, theirs = f"{folder}/ours-{compression}", f"{folder}/theirs-{compression}"
        ef.tfrecord.write(rows, ours, options={"compression": compression})
        records = spark.sparkContext.newAPIHadoopFile(ours, READS, BYTES, NOTHING)
        found[f"their reader, {compression}"] = labels_of(spark, [bytes(key) for key, _ in records.collect()])

        examples = rows.select(ef.tfrecord.to_example(F.struct("label", "image")).alias("record"))
        output = "mapreduce.output.fileoutputformat.compress"
        settings = {output: str(bool(codec)).lower(), f"{output}.codec": codec or CODECS["zlib"]}
        examples.rdd.map(lambda row: (row["record"], None)).saveAsNewAPIHadoopFile(
            theirs, WRITES, BYTES, NOTHING, conf=settings
        )
        back = spark.read.format("tfrecord").schema(SCHEMA).load(theirs)
        found[f"our reader, {compression}"] = sorted(row["label"] for row in back.collect())
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
