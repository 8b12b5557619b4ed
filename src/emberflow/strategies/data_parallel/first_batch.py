"""The first batch of a compiled model: judged by all ranks together, before the first step is traced."""

import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow.errors import ModelError
from emberflow.strategies.data_parallel.batch_rows import rows_of
from emberflow.strategies.data_parallel.probe import probe
from emberflow.strategies.data_parallel.replica import Replica
from emberflow.strategies.data_parallel.row_kinds import Kind, Kinds
from emberflow.strategies.transport.interface import Transport

_log = logging.getLogger("emberflow")
Prepare = Callable[[Replica, Any], None]


def hook_functions(replica: Replica, prepare: Prepare) -> None:
    """Let the functions that Keras makes of a step see the first batch before they are traced.

    Args:
        replica: The model.
        prepare: Builds all variables of the model from a batch.
    """
    for phase in ("train", "test"):
        _hook_function(replica, prepare, phase)


def _hook_function(replica: Replica, prepare: Prepare, phase: str) -> None:
    model, attribute = replica.model, f"{phase}_function"
    inner_make = getattr(model, f"make_{phase}_function")

    def new_function() -> Any:
        judging = getattr(model, attribute)
        inner_make(force=True)
        function = getattr(model, attribute)
        setattr(model, attribute, judging)
        return function

    def make(force: bool = False) -> Any:
        if getattr(model, attribute) is None or force:
            judging = _Judging(replica, prepare, new_function, is_training=phase == "train")
            setattr(model, attribute, judging)
        return getattr(model, attribute)

    setattr(model, f"make_{phase}_function", make)


class _Judging:
    """Keras' function over the batches of an iterator, which judges the first of them that has rows."""

    def __init__(
        self, replica: Replica, prepare: Prepare, new_function: Callable[[], Any], *, is_training: bool
    ) -> None:
        self._replica, self._prepare, self._new_function = replica, prepare, new_function
        self._is_training = is_training
        self._function: Any = None
        self._traced_with: Kinds | None = None

    def __call__(self, iterator: Iterator[Any]) -> Any:
        replica = self._replica
        if not (replica.is_judged if self._is_training else replica.kinds):
            batch, iterator = _peeked(iterator)
            self._prepare(replica, batch)
            # Ranks may evaluate different numbers of batches, so there each judges by itself.
            _judge(replica, _without_optionals(batch), together=self._is_training)
        if self._function is None or self._traced_with is not replica.kinds:
            self._function, self._traced_with = self._new_function(), replica.kinds
        return self._function(iterator)


def _peeked(iterator: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Return the next batch, and an iterator of the same type that has this batch before the others."""
    batch = next(iterator)
    whole = itertools.chain([batch], iterator)
    spec = getattr(iterator, "element_spec", None)
    is_plain = all(isinstance(each, tf.TensorSpec | tf.RaggedTensorSpec) for each in tf.nest.flatten(spec))
    if not isinstance(iterator, tf.data.Iterator) or not is_plain:
        return batch, whole
    # The step is traced for the iterator's types: another iterator would have it traced twice.
    rows = tf.data.Dataset.from_generator(lambda: whole, output_signature=spec)
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = (
        False  # it would take batches that the step does not get
    )
    return batch, iter(rows.with_options(options))


def _without_optionals(batch: Any) -> Any:
    """Keras packs what is None in a batch into optionals."""
    is_optional = tf.experimental.Optional
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, is_optional) else leaf, batch)


def _judge(replica: Replica, batch: Any, *, together: bool) -> None:
    mine = _probed(replica, batch) if int(rows_of(batch)) else None
    kinds = _agreed(replica.transport, mine) if together else mine
    if kinds is None:  # no rank has rows yet
        return
    _refuse(replica, kinds)
    replica.kinds = kinds
    replica.is_judged = together


def _probed(replica: Replica, batch: Any) -> Kinds | None:
    model = replica.model
    if replica.has_own_step and model.loss is None:
        return Kinds()  # its loss is computed inside of its step, where nobody sees it
    try:
        return probe(replica, batch)
    except Exception as error:
        if replica.exact and not replica.has_own_step:
            raise ModelError(
                "The model must be able to run on a few rows of its first batch: that shows whether its losses and "
                f"metrics are means or sums over rows. Received: {type(error).__name__}: {error}",
                "Let the model take any number of rows, or pass exact=False to ctx.distribute.",
            ) from error
        _log.warning(
            "Losses and metrics are taken for means over rows: the model could not be probed.", exc_info=error
        )
        return Kinds()


def _agreed(transport: Transport, mine: Kinds | None) -> Kinds | None:
    """Return what all ranks with rows found out together; all ranks must call it."""
    codes = [] if mine is None else mine.to_codes()
    lengths = np.asarray(transport.gather(tf.constant([len(codes)], tf.int64)))
    if not lengths.any():
        return None
    everything = np.asarray(transport.gather(tf.constant(codes, tf.int64)))
    return Kinds.from_codes(everything.reshape(-1, lengths.max()).tolist())


def _refuse(replica: Replica, kinds: Kinds) -> None:
    """Refuse what is neither a mean nor a sum, the same on all ranks."""
    names = [f"the loss of output {place}" for place in _neither(kinds.outputs)]
    names += [f"model.losses[{place}] (of add_loss or a regularizer)" for place in _neither(kinds.additions)]
    metrics = [metric.name for metric, _ in replica.states_of_metrics()]
    names += [
        f"metric {name!r}" for name in dict.fromkeys(metrics[place] for place in _neither(kinds.states))
    ]
    if not names:
        return
    received = f"neither, for {', '.join(names)}"
    if not replica.exact:
        _log.warning(
            "Results differ from those of one process: not means or sums over rows, but %s.", received
        )
        return
    raise ModelError(
        "Losses and the state of metrics must be means or sums over rows to be the same on any number of workers. "
        f"Received: {received}",
        "Write it as a mean or a sum over rows, a metric as sums and counts; or pass exact=False to ctx.distribute, "
        "and accept results that differ from those of one process.",
    )


def _neither(kinds: tuple[Kind, ...]) -> list[int]:
    return [place for place, kind in enumerate(kinds) if kind is Kind.NEITHER]
