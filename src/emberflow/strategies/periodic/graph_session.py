"""Periodic averaging of a graph of TensorFlow 1: a session, its variables, and batches by feed name."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tensorflow as tf
from emberflow.errors import ConfigError
from emberflow.strategies.periodic.client import PeriodicClient
from emberflow.strategies.periodic.combiners import Combiner
from emberflow.strategies.periodic.schedule import Report, SyncSchedule
from emberflow.strategies.transport.interface import Array


class PeriodicSession:
    """Runs a training step on batches and averages with the servers; created by ``ctx.periodic_session``."""

    def __init__(
        self,
        session: Any,
        variables: Sequence[Any],
        client: PeriodicClient,
        interval: int,
        combiner: Combiner,
        report: Report,
    ) -> None:
        self._session = session
        self._variables = list(variables)
        self._rank = client.rank
        with session.graph.as_default():  # once: a graph that grows with each exchange becomes slow
            self._inputs = [
                tf.compat.v1.placeholder(each.dtype.base_dtype, each.shape) for each in self._variables
            ]
            pairs = zip(self._variables, self._inputs, strict=True)
            self._assign = tf.group(*(tf.compat.v1.assign(variable, value) for variable, value in pairs))
        self._schedule = SyncSchedule(
            client,
            self._read,
            self._write,
            interval=interval,
            combiner=combiner,
            are_statistics=[False] * len(self._variables),
            report=report,
        )

    def run(self, fetches: Any, feeds: Sequence[Any], batches: Iterable[Any]) -> Any:
        """Run `fetches` on each batch, and average every so many steps.

        Args:
            fetches: As for ``Session.run``: the training operation, and what else you want of the last step.
            feeds: Placeholders or their names, such as ``"x:0"``, in the order of a batch's parts.
            batches: Tuples of arrays; a dataset that was made outside of the graph, or anything that yields them.

        Returns:
            What the last step fetched, or None if there was none.
        """
        fetched = None
        for batch in _numpy_batches(batches):
            if len(batch) != len(feeds):
                raise ConfigError(
                    f"A batch must have one part for each feed. Received: {len(batch)} parts, feeds={list(feeds)!r}.",
                    fix="Pass the feeds in the order of features, label and weight.",
                )
            fetched = self._session.run(fetches, dict(zip(feeds, batch, strict=True)))
            self._schedule.step()
        self._schedule.sync()
        return fetched

    def finish(self) -> list[int]:
        """End the exchanges of this worker; the chief waits for all others, and then has the final values."""
        return self._schedule.finish(waits=self._rank == 0)

    def _read(self) -> list[Array]:
        return [np.asarray(value) for value in self._session.run(self._variables)]

    def _write(self, values: Sequence[Array]) -> None:
        self._session.run(self._assign, dict(zip(self._inputs, values, strict=True)))


def _numpy_batches(batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield tuples of arrays. The caller is in a graph, where no dataset can be read; a thread of its own is not."""
    if not isinstance(batches, tf.data.Dataset):
        for batch in batches:
            yield tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        return
    with ThreadPoolExecutor(1) as reader:
        elements = reader.submit(iter, batches).result()
        while (arrays := reader.submit(_next_arrays, elements).result()) is not None:
            yield arrays


def _next_arrays(elements: Iterator[Any]) -> tuple[Any, ...] | None:
    element = next(elements, None)
    return None if element is None else tuple(part.numpy() for part in tf.nest.flatten(element))
