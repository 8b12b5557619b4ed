"""What a node runs: the driver's graph, with the driver's values, trained on the node's rows."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorspark.core.feed_rows import STRING, Feed
from tensorspark.core.weight_combiner import Combiner


@dataclass(frozen=True, kw_only=True)
class GraphTraining:
    """A graph and how to train it, the same for all nodes.

    Attributes:
        graph: The graph, a MetaGraphDef as bytes.
        values: The value of each variable, by name.
        fetches: Names of what each step runs, in the structure that the user passed.
        feeds: The placeholders.
        parameters: Names of the variables that workers exchange.
        batch_size: Rows of a step.
        sync_interval: Steps between two exchanges.
        combiner: How the parameter server merges what is pushed.
        shuffle: Whether the rows come in an order of their own.
        seed: That order.
        options: RunOptions of each step, as bytes.
    """

    graph: bytes = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)
    fetches: Any
    feeds: Sequence[Feed]
    parameters: Sequence[str]
    batch_size: int
    sync_interval: int
    combiner: Combiner
    shuffle: bool
    seed: int
    options: bytes | None


def train_in_node(training: GraphTraining, ctx: Any) -> list[Any] | None:
    """Train on this node's rows; the chief returns the values that all workers have come to."""
    import tensorflow as tf

    v1 = tf.compat.v1
    rows = ctx.dataset(  # outside of the graph, in which no dataset can be read
        columns=[feed.column for feed in training.feeds],
        batch_size=training.batch_size,
        shuffle=training.shuffle,
        seed=training.seed,
        dtypes={feed.column: feed.dtype for feed in training.feeds if feed.dtype != STRING},
        shapes={feed.column: feed.shape for feed in training.feeds if feed.dtype != STRING},
    )
    with tf.Graph().as_default(), _session(training.options) as session:
        v1.train.import_meta_graph(v1.MetaGraphDef.FromString(training.graph))
        variables = {variable.name: variable for variable in v1.global_variables()}
        session.run([v1.local_variables_initializer(), v1.tables_initializer()])
        for name, value in training.values.items():
            set_value(session, variables[name], value)
        parameters = [variables[name] for name in training.parameters]
        sync = ctx.periodic_session(
            session, parameters, interval=training.sync_interval, combiner=training.combiner
        )
        sync.run(training.fetches, [feed.name for feed in training.feeds], rows)
        sync.finish()
        return session.run(parameters) if ctx.is_chief else None


def set_value(session: Any, variable: Any, value: Any) -> None:
    """Set a variable by its own initializer: the graph does not grow."""
    session.run(variable.initializer, {variable.initializer.inputs[1]: value})


def _session(options: bytes | None) -> Any:
    """Return a session that runs each step with the user's options."""
    import tensorflow as tf

    v1 = tf.compat.v1
    session = v1.Session(config=v1.ConfigProto(allow_soft_placement=True))
    if options is not None:
        session.run = functools.partial(session.run, options=v1.RunOptions.FromString(options))
    return session
