"""Refuses models that cannot be trained exactly on many ranks, with a fix, before anything is trained."""

import logging
from collections.abc import Iterator
from typing import Any

import keras

from emberflow.errors import ModelError

_log = logging.getLogger("emberflow")
_REDUCTIONS = ("sum_over_batch_size", "mean", "sum")


def check_compiled(model: Any, *, exact: bool) -> None:
    """Refuse what would give other results than one process, if exact; disable what cannot run."""
    for loss in keras.tree.flatten(getattr(model, "loss", None)):
        reduction = getattr(loss, "reduction", None)
        if exact and isinstance(loss, keras.losses.Loss) and reduction not in _REDUCTIONS:
            raise ModelError(
                "A loss must be the mean or the sum over rows to be the same on any number of workers. "
                f"Received: reduction={reduction!r} of {type(loss).__name__}",
                f'Write {type(loss).__name__}(reduction="sum_over_batch_size"), '
                "or pass exact=False to ctx.distribute.",
            )
    if model.jit_compile:
        _log.warning("jit_compile is disabled: XLA cannot compile a step that exchanges with other workers.")
        model.jit_compile = False


def check_layers(model: Any, *, exact: bool) -> None:
    """Refuse layers that would silently do something else than documented, or, if exact, than in one process."""
    for layer in layers_of(model):
        if exact and isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise ModelError(
                "A stateful RNN needs one fixed batch size, and rows that continue those of the batch before. "
                "Workers take batches of different sizes, each of its own rows. "
                f"Received: stateful=True in layer {layer.name!r}",
                "Pass stateful=False and give whole sequences; or pass exact=False to ctx.distribute.",
            )


def layers_of(layer: Any) -> Iterator[Any]:
    """Yield each layer inside a model once, however deep."""
    waiting, seen = [layer], {id(layer)}
    while waiting:
        for value in vars(waiting.pop()).values():
            for leaf in _leaves(value):
                if isinstance(leaf, keras.Layer) and id(leaf) not in seen:
                    seen.add(id(leaf))
                    waiting.append(leaf)
                    yield leaf


def optimizers_of(model: Any) -> list[Any]:
    """Return all optimizers in a model: that of `compile`, and those of a custom step."""
    holders = [model, *layers_of(model)]
    found = [leaf for holder in holders for value in vars(holder).values() for leaf in _leaves(value)]
    unique = {id(each): each for each in found if isinstance(each, keras.optimizers.Optimizer)}
    return list(unique.values())


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else [value]
