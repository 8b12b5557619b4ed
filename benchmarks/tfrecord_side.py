"""One side of the benchmark `tfrecord`: a process that takes commands on stdin. It may run on another PySpark."""

import json
import os
import sys
from pathlib import Path


def main():
    kind, folder, jar = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    out = sys.stdout
    sys.stdout = sys.stderr
    alone = {"tfdata": read_with_tensorflow, "tfrecords": read_without_spark}
    act = alone[kind](folder) if kind in alone else spark_side(folder, SETTINGS[kind](jar))
    for line in sys.stdin:
        command = json.loads(line)
        if command is not None:
            act(*command)
        print("done", file=out, flush=True)


SETTINGS = {
    "spark": lambda _: {},
    "jar": lambda jar: {"spark.jars": jar},
    "tuned": lambda _: {
        "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true"
        " -Darrow.enable_null_check_for_get=false",
        "spark.python.unix.domain.socket.enabled": "true",
    },
}


def spark_side(folder, more):
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "3g"}
    settings.update(more)
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def act(action, side, table, copies):
        rows = spark.read.parquet(*copied(folder, f"{table}.parquet", copies))
        actions = {
            ("write", "emberflow"): lambda: save(rows, "tfrecord", f"{folder}/{table}.tfrecord"),
            ("write", "jar"): lambda: save(rows, "tfrecord", f"{folder}/{table}.jar"),
            ("write", "parquet"): lambda: save(rows, "parquet", f"{folder}/{table}.copy"),
            ("write", "protobuf"): lambda: write_protobuf(rows, f"{folder}/{table}.protobuf"),
            ("read", "emberflow"): lambda: drain(
                load(spark, rows, copied(folder, f"{table}.tfrecord", copies))
            ),
            ("read", "tuned"): lambda: drain(load(spark, rows, copied(folder, f"{table}.tfrecord", copies))),
            ("read", "packed"): lambda: drain(
                load_packed(spark, copied(folder, f"{table}.tfrecord", copies))
            ),
            ("read", "jar"): lambda: drain(load(spark, rows, copied(folder, f"{table}.tfrecord", copies))),
            ("read", "parquet"): lambda: drain(rows),
            ("read", "protobuf"): lambda: drain(
                read_protobuf(spark, rows.schema, f"{folder}/{table}.tfrecord")
            ),
        }
        actions[action, side]()

    return act


def copied(folder, name, copies):
    """Return folders with the same files: nobody reads a path twice that is given twice."""
    folders = [Path(folder) / name]
    for copy in range(1, copies):
        other = Path(folder) / "copies" / str(copy) / name
        folders.append(other)
        if not other.exists():
            other.mkdir(parents=True)
            for file in folders[0].iterdir():
                os.link(file, other / file.name)
    return [str(each) for each in folders]


def save(rows, kind, path):
    rows.write.format(kind).mode("overwrite").save(path)


def drain(rows):
    rows.write.format("noop").mode("overwrite").save()


def load(spark, rows, path):
    return spark.read.format("tfrecord").schema(without_nulls(rows.schema)).load(path)


def load_packed(spark, paths):
    return (
        spark.read.format("tfrecord").schema("image binary, label long").option("packed", "image").load(paths)
    )


def without_nulls(schema):
    """Return the schema that inference gives: arrays have no nulls in them."""
    text = schema.json().replace('"containsNull":true', '"containsNull":false')
    return type(schema).fromJson(json.loads(text))


def write_protobuf(rows, path):
    """Write Examples row by row, as one does by hand."""
    Path(path).mkdir(exist_ok=True)

    def write(batches):
        import pyarrow as pa
        from pyspark import TaskContext

        import tensorflow as tf

        count = 0
        with tf.io.TFRecordWriter(f"{path}/part-{TaskContext.get().partitionId()}") as writer:
            for batch in batches:
                for row in batch.to_pylist():
                    writer.write(example_of(tf, row).SerializeToString())
                    count += 1
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    rows.mapInArrow(write, "rows long").collect()


def example_of(tf, row):
    features = {}
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if isinstance(values[0], int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        elif isinstance(values[0], float):
            features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=values))
        else:
            data = [one.encode() if isinstance(one, str) else one for one in values]
            features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=data))
    return tf.train.Example(features=tf.train.Features(feature=features))


def read_protobuf(spark, schema, path):
    """Read Examples row by row, as one does by hand."""
    files = [str(file) for file in sorted(Path(path).glob("part-*"))]
    listed = spark.createDataFrame([(file,) for file in files], "path string").repartition(len(files))

    def read(batches):
        import pyarrow as pa

        import tensorflow as tf

        for batch in batches:
            for file in batch.column(0).to_pylist():
                records = tf.data.TFRecordDataset(file).batch(1000)
                for group in records.as_numpy_iterator():
                    rows = [row_of(tf.train.Example.FromString(record), schema) for record in group]
                    yield pa.RecordBatch.from_pylist(rows, arrow)

    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema)
    return listed.mapInArrow(read, schema)


def row_of(example, schema):
    row = {}
    for field in schema:
        feature = example.features.feature[field.name]
        values = getattr(feature, feature.WhichOneof("kind")).value
        if field.dataType.typeName() == "array":
            row[field.name] = list(values)
        else:
            row[field.name] = values[0].decode() if field.dataType.typeName() == "string" else values[0]
    return row


def read_with_tensorflow(folder):
    import tensorflow as tf

    fixed = tf.io.FixedLenFeature
    narrow = {f"int_{k}": fixed([], tf.int64) for k in range(20)}
    narrow.update({f"float_{k}": fixed([], tf.float32) for k in range(18)})
    narrow.update({f"word_{k}": fixed([], tf.string) for k in range(2)})
    specs = {
        "a": {"image": fixed([784], tf.float32), "label": fixed([], tf.int64)},
        "b": narrow,
        "c": {"image": fixed([], tf.string), "label": fixed([], tf.int64)},
    }

    def act(_action, _side, table, copies):
        folders = copied(folder, f"{table}.tfrecord", copies)
        files = [str(file) for each in folders for file in sorted(Path(each).glob("part-*"))]
        records = tf.data.TFRecordDataset(files).batch(50 if table == "c" else 1000)
        for _ in records.map(lambda group: tf.io.parse_example(group, specs[table])):
            pass

    return act


def read_without_spark(folder):
    from emberflow.tfrecord.tfrecords import TFRecords

    def act(_action, _side, table, copies):
        for path in copied(folder, f"{table}.tfrecord", copies):
            source = TFRecords(path)
            for fragment in source.fragments():
                for _ in source.read(fragment, 0, None):
                    pass

    return act


if __name__ == "__main__":
    main()
