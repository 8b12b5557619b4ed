"""What a function's code tells of the packages that it will import."""

import functools
import os
import types
from collections.abc import Callable
from typing import Any

import pytest

from emberflow._driver.function_needs import packages_used
from emberflow._node.context import Context
from emberflow.ml.training import TrainFunction

fake = types.ModuleType("tensorflow")
helpers = types.ModuleType("helpers")
helpers.tf = fake  # type: ignore[attr-defined]


def counts(ctx: Any) -> int:
    return sum(1 for _ in ctx.arrow())


def imports(ctx: Any) -> Any:
    from tensorflow.keras import layers

    return layers


def uses_global(ctx: Any) -> Any:
    return fake.constant(1)


def uses_module_of_yours(ctx: Any) -> Any:
    return helpers.build()


def calls_another(ctx: Any) -> Any:
    return imports(ctx)


def has_inner(ctx: Any) -> Any:
    def inner() -> Any:
        import tf_keras

        return tf_keras

    return inner()


def distributes(ctx: Any) -> Any:
    return ctx.distribute(object())


def takes_rows(ctx: Any) -> Any:
    return list(ctx.dataset(batch_size=3))


def sets_the_backend(ctx: Any) -> Any:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    return keras


class Trainer:
    def __call__(self, ctx: Any) -> Any:
        return self.train(ctx)

    def train(self, ctx: Any) -> Any:
        import keras

        return keras


def closes_over(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (counts, ()),
        (print, ()),
        (imports, ("tensorflow",)),
        (uses_global, ("tensorflow",)),
        (uses_module_of_yours, ("tensorflow",)),
        (calls_another, ("tensorflow",)),
        (has_inner, ("tensorflow", "tf_keras")),
        (distributes, ("tensorflow", "keras")),
        (takes_rows, ("tensorflow",)),
        (sets_the_backend, ()),
        (Trainer(), ("tensorflow", "keras")),
        (Trainer().train, ("tensorflow", "keras")),
        (functools.partial(calls_another, ctx=1), ("tensorflow",)),
        (closes_over([1, "keras", {"a": imports}]), ("tensorflow",)),
        (closes_over("keras"), ()),
        (closes_over(list(range(100_000))), ()),
    ],
)
def test_packages_are_found_where_the_code_or_what_it_refers_to_uses_them(
    fn: Callable[..., Any], expected: tuple[str, ...]
) -> None:
    assert packages_used(fn) == expected


def test_a_function_of_ours_tells_it_itself() -> None:
    assert packages_used(TrainFunction(None)) == ("tensorflow", "keras", "emberflow.ml.trainers")  # type: ignore[arg-type]


def test_the_named_methods_are_methods_of_the_context() -> None:
    from emberflow._driver.function_needs import OF_KERAS, OF_TENSORFLOW

    assert [name for name in OF_KERAS | OF_TENSORFLOW if not hasattr(Context, name)] == []
