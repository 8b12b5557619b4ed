"""An embedding in several variables, each on a parameter server of its own: for tables larger than one server."""

from typing import Any

import keras

import tensorflow as tf
from emberflow.config import check_count


@keras.saving.register_keras_serializable(package="emberflow")
class ShardedEmbedding(keras.layers.Layer):  # type: ignore[misc]
    """Turns integers into vectors, as ``keras.layers.Embedding`` does, from a table split into `shards`.

    Row ``i`` of the table is in shard ``i % shards``, so that frequent small numbers are spread over all. TensorFlow
    places the shards on the parameter servers in turn; a step moves only the rows that it looks up.

    Args:
        input_dim: Rows of the table.
        output_dim: Length of a vector.
        shards: How many variables; as many as parameter servers, or a multiple.
        embeddings_initializer: The initial values of the table.
        **options: Those of every Keras layer.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        shards: int,
        embeddings_initializer: Any = "uniform",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in (("input_dim", input_dim), ("output_dim", output_dim), ("shards", shards)):
            check_count(name, value)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.shards = shards
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Any = None) -> None:  # noqa: ARG002 - Keras' signature
        """Create the shards."""
        self.tables = [
            self.add_weight(
                name=f"shard_{shard}",
                shape=(-(-(self.input_dim - shard) // self.shards), self.output_dim),
                initializer=self._initializer_of(shard),
            )
            for shard in range(self.shards)
        ]
        self.built = True

    def _initializer_of(self, shard: int) -> Any:
        """Return an initializer with a seed of its own: the same would give each shard the same rows."""
        serialized = keras.initializers.serialize(self.embeddings_initializer)
        if not isinstance(serialized, dict):
            return self.embeddings_initializer
        config = dict(serialized["config"])
        if isinstance(config.get("seed"), int):
            config["seed"] += shard
        return keras.initializers.deserialize(serialized | {"config": config})

    def call(self, inputs: Any) -> Any:
        """Look the vectors up, each on the server that has it."""
        numbers = tf.cast(inputs, tf.int64)
        tables = [table.value for table in self.tables]
        found = tf.compat.v1.nn.embedding_lookup(tables, numbers, partition_strategy="mod")
        return tf.cast(found, self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        """Return the shape of the output."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that create the same layer."""
        own = {"input_dim": self.input_dim, "output_dim": self.output_dim, "shards": self.shards}
        initializer = keras.initializers.serialize(self.embeddings_initializer)
        return {**super().get_config(), **own, "embeddings_initializer": initializer}
