"""The part of `ctx` in which nodes serve each other: TensorFlow's servers and strategies, asynchronous training."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from emberflow._node.mirror import Mirror
from emberflow._node.strategy_services import StrategyServices
from emberflow._node.text_gathering import gather_texts
from emberflow._plan.tf_config import ClusterSpec
from emberflow._protocol.codec import Message
from emberflow._protocol.node_messages import Serving as ServingMessage
from emberflow.errors import ConfigError, EncryptionError

if TYPE_CHECKING:
    from emberflow.strategies.parameter_server.coordinator import Coordinator
    from emberflow.strategies.periodic.callback import PeriodicAveraging
    from emberflow.strategies.periodic.combiners import Combiner
    from emberflow.strategies.periodic.graph_session import PeriodicSession


class ServedError(BaseException):
    """Unwinds your function on a node that served the chief until the run was over."""


class Serving:
    """What `Context` can do with other nodes' servers; its attributes are the context's."""

    rank: int
    role: str
    index: int
    workers: int
    ps: int
    cluster_spec: ClusterSpec
    devices: tuple[str, ...]
    _services: StrategyServices
    _mirror: Mirror
    _allows_tf_servers: bool
    _dispatchers: tuple[str, ...]
    _is_asynchronous: bool
    _over: threading.Event
    _send: Callable[[Message], None]
    report: Callable[..., None]

    @property
    def is_chief(self) -> bool:
        """Whether this node is the one that saves, exports and returns the value."""
        return self.rank == 0

    def all_gather(self, message: str = "") -> list[str]:
        """Wait until every worker has called it; return what each of them passed, in rank order.

        For addresses, counts and other short texts, and without a message as a barrier. All workers must call it
        equally often and, with `distribute`, in the same order. A worker that does not call it within
        ``exchange_timeout``, the first time within ``join_timeout``, is an error on the others.

        Args:
            message: The text of this worker; of any length, and workers may differ.
        """
        if self.role not in ("chief", "worker") or (self._is_asynchronous and self.workers > 1):
            raise ConfigError(
                "ctx.all_gather is for chief and workers of a synchronous run. "
                f"Received: role={self.role!r}, workers={self.workers}, ps={self.ps}.",
                fix='Call it on chief and workers only, and leave strategy="data_parallel" as it is.',
            )
        return gather_texts(self._services.parallel.transport(), message)

    def strategy(self) -> Any:
        """Return the ``tf.distribute`` strategy for this cluster.

        With parameter servers: ParameterServerStrategy on the chief, which coordinates; on workers and parameter
        servers the call serves the chief and does not return: your function ends there. Without: a
        MultiWorkerMirroredStrategy with two or more workers, TensorFlow's default strategy with one and on the
        evaluator. Call it once, before any other TensorFlow operation: TensorFlow demands that of collectives.
        """
        import tensorflow as tf

        if self.role == "evaluator":
            return tf.distribute.get_strategy()
        if self.ps:
            return self._coordinate() if self.is_chief else self.serve()
        if self.workers == 1:
            return tf.distribute.get_strategy()
        self._check_tf_servers()
        return self._services.parallel.mirrored_strategy()

    def periodic(
        self, model: Any, *, interval: int = 100, combiner: "Combiner" = "delta"
    ) -> "PeriodicAveraging":
        """Train a Keras model on each worker alone, averaging with the others on a parameter server at intervals.

        Needs ``ef.run(..., strategy="periodic", ps=1)``. Call it on every worker with the same built model: all
        start from the chief's weights. Pass the result to `fit` as a callback, and call its `finish` after the
        last `fit`: the chief then has what all workers have learned.

        Args:
            model: A built Keras model; its weights are set to those of the server.
            interval: Steps of this worker between two exchanges.
            combiner: "delta": the server adds what this worker has learned since its last pull; "mean": it moves
                a worker's share of the way to this worker's values; or a function of three flat arrays (the
                server's values, this worker's, those that this worker pulled) that returns the server's new ones.
        """
        from emberflow._node.mirrored_callbacks import mirror_model_fit
        from emberflow.strategies.periodic.callback import PeriodicAveraging

        mirror_model_fit(model, self._mirror, writes=self.is_chief)
        return PeriodicAveraging(model, self._services.averaging.client(), interval, combiner, self.report)

    def periodic_session(
        self, session: Any, variables: Sequence[Any], *, interval: int = 100, combiner: "Combiner" = "delta"
    ) -> "PeriodicSession":
        """Do as `periodic` for a graph of TensorFlow 1: a ``tf.compat.v1.Session`` and the variables to average.

        The variables must be initialised; theirs are set to the server's values.
        """
        from emberflow.strategies.periodic.graph_session import PeriodicSession

        return PeriodicSession(
            session, variables, self._services.averaging.client(), interval, combiner, self.report
        )

    def coordinate(
        self, rows: Callable[[], Any], *, validation: Callable[[], Any] | None = None, first_epoch: int = 0
    ) -> "Coordinator":
        """Train Keras models asynchronously with their variables on parameter servers.

        Needs ``ef.run(..., strategy="parameter_server", ps=1)``. Call it on chief and workers, before any other
        TensorFlow operation. Workers serve and do not return from it; the chief gets an object that fits models:

            trainer = ctx.coordinate(lambda: ctx.dataset("train", features="x", label="y", batch_size=32))
            with trainer.scope():
                model = build_model()
            trainer.fit(model, epochs=3)

        Args:
            rows: Called on each node, on the chief in the scope; returns its own dataset. An epoch is one
                iteration on every node.
            validation: The same for rows to evaluate after each epoch.
            first_epoch: The epoch of the first iteration of `rows` here, when training is resumed.
        """
        if not self._services.sharing.takes_part:
            raise ConfigError(
                "ctx.coordinate needs parameter servers and a worker beside the chief. "
                f"Received: workers={self.workers}, ps={self.ps}.",
                fix='Pass workers=2, ps=1, strategy="parameter_server" to ef.run.',
            )
        strategy = self._coordinate() if self.is_chief else None
        datasets = {"train": rows} | ({} if validation is None else {"validation": validation})
        with nullcontext() if strategy is None else strategy.scope():
            sources = self._services.sharing.sources(datasets, first_epoch)
        if strategy is None:
            self.serve()
        from emberflow._node.mirrored_callbacks import mirrored_fit
        from emberflow.strategies.parameter_server.coordinator import Coordinator

        trainer = Coordinator(strategy, sources, self.workers, self._services.sharing.exchange_timeout)
        trainer.fit = mirrored_fit(trainer.fit, self._mirror, writes=True)  # type: ignore[method-assign]
        return trainer

    def data_service(self) -> str:
        """Return the address of this job's tf.data service, as ``tf.data.experimental.service.distribute`` takes it.

        Only without Spark, where the job has the roles dispatcher and data-worker.
        """
        if not self._dispatchers:
            raise ConfigError(
                "ctx.data_service needs a tf.data service: a dispatcher and data workers. "
                f"Received: role={self.role!r}, workers={self.workers}, ps={self.ps}, no dispatcher.",
                fix="Add `dispatcher: {replicas: 1}` and `data-worker: {replicas: 2}` to the roles of the job's "
                "description. A run on Spark has none: pass the address of one that runs elsewhere, or use "
                "ctx.dataset.",
            )
        return f"grpc://{self._dispatchers[0]}"

    def serve(self) -> NoReturn:
        """Serve TensorFlow operations to the other nodes until chief and workers are done; never returns."""
        self._check_tf_servers()
        import tensorflow as tf

        if self._services.parallel.has_tf_server:
            raise ConfigError(
                "TensorFlow's collectives have taken this node's address for a server of their own. "
                f'Received: transport="collectives", or "auto" with gpus={len(self.devices)}.',
                fix='Pass transport="ring" to ef.run.',
            )
        server = tf.distribute.Server(
            tf.train.ClusterSpec(self.cluster_spec),
            job_name=self.role,
            task_index=self.index,
            protocol="grpc",
        )
        self._send(ServingMessage(server.target))
        self._over.wait()
        raise ServedError

    def _check_tf_servers(self) -> None:
        """Refuse TensorFlow's own servers in a run that must be encrypted."""
        if not self._allows_tf_servers:
            raise EncryptionError(
                "TensorFlow's own servers cannot encrypt, and this run must be: Spark encrypts its traffic, "
                f"or encrypt=True. Received: role={self.role!r}, workers={self.workers}, ps={self.ps}.",
                fix="Use ctx.distribute or ctx.periodic, which are encrypted; or, if the network between your hosts "
                "is trusted, pass allow_unencrypted=True.",
            )

    def _coordinate(self) -> Any:
        self._check_tf_servers()
        import tensorflow as tf

        if self.workers < 2:
            raise ConfigError(
                "ParameterServerStrategy needs workers beside the chief, which only coordinates. "
                f"Received: workers={self.workers}, ps={self.ps}.",
                fix="Pass workers=2 or more.",
            )
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver)
