"""`SparkSession` of tensorspark: trains the graph of a TensorFlow session on an RDD."""

import functools
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import emberflow as ef
import tensorflow as tf
from emberflow_compat.classic_sessions import check_context
from tensorspark.core.feed_rows import feeds_of, rows_of
from tensorspark.core.graph_training import GraphTraining, set_value, train_in_node
from tensorspark.core.weight_combiner import Parameter, WeightCombiner, combiner_of

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

log = logging.getLogger("emberflow")
v1 = tf.compat.v1

if (
    tf.executing_eagerly()
):  # `tf.placeholder` is an error otherwise, and programs for this library always use it
    v1.disable_v2_behavior()


class SparkSession:
    """Trains the graph of a session on the executors; what was learned ends up in the session.

    Args:
        spark_context: The Spark context; Spark Connect has none.
        session: A ``tf.compat.v1.Session`` whose variables are initialised.
        user: Not needed any more: nothing is stored on HDFS in between.
        name: Of the session, for logs.
        target: Was never used.
        server_host: Not needed any more: the parameter server is a node of Emberflow, which finds its address.
        server_port: Likewise.
        graph: Was never used.
        config: Was never used.
        sync_interval: Steps of a worker between two exchanges with the parameter server.
        batch_size: Rows of a step of one worker.
    """

    def __init__(
        self,
        spark_context: "SparkContext",
        session: Any,
        user: str | None = "",
        name: str | None = "",
        target: str = "",
        server_host: str = "localhost",
        server_port: int = 10080,
        graph: Any = None,
        config: Any = None,
        sync_interval: int = 3,
        batch_size: int = 10000,
    ) -> None:
        del user, target, server_host, server_port, graph, config
        check_context(spark_context, "tensorspark's SparkSession", native="ctx.periodic_session in ef.run")
        self._sc = spark_context
        self._session = session
        self._name = name or "session"
        self._sync_interval = sync_interval
        self._batch_size = batch_size

    def __enter__(self) -> "SparkSession":
        self._session.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)
        self._session.close()

    @staticmethod
    def reset(target: str, containers: Sequence[str] | None = None, config: Any = None) -> None:
        """Do what ``tf.compat.v1.Session.reset`` does."""
        v1.Session.reset(target, containers, config)

    def get_session(self) -> Any:
        """Return the TensorFlow session."""
        return self._session

    def stop_param_server(self) -> None:
        """Do nothing: a parameter server ends with the `run` that started it."""

    def run(
        self,
        fetches: Any,
        feed_rdd: "RDD[Any] | None" = None,
        feed_name_list: Sequence[Any] | None = None,
        param_list: Sequence[Any] | None = None,
        feed_dict: Any = None,
        weight_combiner: WeightCombiner | None = None,
        shuffle_within_partition: bool = False,
        options: Any = None,
        run_metadata: Any = None,
        server_reusable: bool = False,
    ) -> Any:
        """Run `fetches` on each batch of an RDD, on all executors; without an RDD, once, here.

        Args:
            fetches: What a step runs, usually the operation that trains.
            feed_rdd: Tuples with one element for each name of `feed_name_list`. There are as many workers as it has
                partitions, or fewer where Spark has fewer slots; one more slot is for the parameter server.
            feed_name_list: Names of the placeholders, in the order of the tuples.
            param_list: The variables that workers exchange; the session has their final values afterwards.
            feed_dict: For a run without an RDD.
            weight_combiner: How the server merges what workers push; the mean if left out.
            shuffle_within_partition: Train on a worker's rows in random order.
            options: RunOptions of each step.
            run_metadata: For a run without an RDD.
            server_reusable: Not needed any more: the values are in the session between two runs.

        Returns:
            What was fetched, of a run without an RDD; else None.
        """
        del server_reusable
        if feed_rdd is None:
            return self._session.run(fetches, feed_dict, options, run_metadata)
        if feed_name_list is None or param_list is None:
            raise ef.ConfigError(
                "A run on an RDD needs the names of the placeholders and the variables to exchange. "
                f"Received: feed_name_list={feed_name_list!r}, param_list={param_list!r}.",
                fix="Pass feed_name_list=[x.name, y.name] and param_list=[W, b].",
            )
        graph = self._session.graph
        feeds = feeds_of(graph, feed_name_list, feed_rdd)
        with graph.as_default():
            variables = v1.global_variables()
        parameters = [Parameter(name=each.name, shape=tuple(each.shape.as_list())) for each in param_list]
        training = GraphTraining(
            graph=v1.train.export_meta_graph(graph=graph).SerializeToString(),
            values=self._session.run({variable.name: variable for variable in variables}),
            fetches=tf.nest.map_structure(lambda fetch: graph.as_graph_element(fetch).name, fetches),
            feeds=feeds,
            parameters=[parameter.name for parameter in parameters],
            batch_size=self._batch_size,
            sync_interval=self._sync_interval,
            combiner=combiner_of(weight_combiner, parameters),
            shuffle=shuffle_within_partition,
            seed=secrets.randbits(31),
            options=None if options is None else options.SerializeToString(),
        )
        for variable, value in zip(param_list, self._train(training, feed_rdd), strict=True):
            set_value(self._session, variable, value)
        return None

    def _train(self, training: GraphTraining, rdd: "RDD[Any]") -> list[Any]:
        """Return the values of the parameters after one pass over the RDD."""
        from pyspark.sql import SparkSession as RowSession

        spark = RowSession.builder.getOrCreate()
        rows = rows_of(spark, rdd, training.feeds)
        train = functools.partial(
            ef.run,
            functools.partial(train_in_node, training),
            ps=1,
            strategy="periodic",
            data=rows,
            spark=spark,
        )
        partitions = rdd.getNumPartitions()
        try:
            values: list[Any] = train(workers=partitions).value
        except ef.ClusterError as error:
            if type(error) is not ef.ClusterError:
                raise
            log.info(
                "%s: fewer workers than the %d partitions of feed_rdd: %s", self._name, partitions, error
            )
            values = train(workers="auto").value
        return values
