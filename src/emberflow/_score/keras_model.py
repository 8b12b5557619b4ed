"""The inputs and outputs of a Keras model, from its symbolic tensors; the model is not run."""

from typing import Any

from emberflow._feed.element_types import BYTES
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow.errors import ModelError

NOTHING_KNOWN = (
    "Build the model before you save it (call it once on a batch), export it as a SavedModel (model.export(path)), "
    "or pass a function that loads it and returns a predictor."
)


def load_keras(path: str, *, custom_objects: dict[str, Any], safe_mode: bool) -> Any:
    """Load a ``.keras`` file for scoring only: no optimizer, no code from the file unless it is trusted."""
    import keras

    try:
        return keras.saving.load_model(
            path, custom_objects=custom_objects or None, compile=False, safe_mode=safe_mode
        )
    except Exception as error:
        raise ModelError(
            f"The Keras model {path} cannot be loaded: {error}",
            fix='Pass custom_objects={"Name": Class} for classes of your own; a model with Python lambdas cannot be '
            "loaded safely from a file: pass the model object itself, or export it as a SavedModel.",
        ) from error


def describe_keras(model: Any) -> ModelFacts:
    """Return the inputs and outputs of a Keras model."""
    import keras

    inputs, outputs = _symbols(model)
    names = _input_names(inputs)
    flat_inputs, flat_outputs = keras.tree.flatten(inputs), keras.tree.flatten(outputs)
    return ModelFacts(
        kind="keras",
        inputs=tuple(_tensor(name, symbol) for name, symbol in zip(names, flat_inputs, strict=True)),
        outputs=tuple(
            _tensor(name, symbol)
            for name, symbol in zip(_output_names(model, outputs), flat_outputs, strict=True)
        ),
        versions=(("keras", keras.__version__),),
    )


def structure_of(model: Any, names: list[str]) -> Any:
    """Return a function that puts arrays by name into the structure that the model is called with."""
    import keras

    inputs, _ = _symbols(model)
    return lambda arrays: keras.tree.pack_sequence_as(inputs, [arrays[name] for name in names])


def flatten(outputs: Any) -> list[Any]:
    """Return the arrays of a model's result in the order of its facts."""
    import keras

    return list(keras.tree.flatten(outputs))


def _symbols(model: Any) -> tuple[Any, Any]:
    """Return the structures of symbolic inputs and outputs; those of a built subclass come from its build shapes."""
    import keras

    if getattr(model, "inputs", None) and getattr(model, "outputs", None):
        if isinstance(model, keras.Sequential):
            return model.inputs[0], model.outputs[0]
        return _single(model.input), _single(model.output)
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        raise ModelError(
            f"The model must have known inputs. Received: {type(model).__name__}, a subclass of keras.Model that was "
            "saved without its input shape.",
            fix=NOTHING_KNOWN,
        )
    dtype = getattr(model, "input_dtype", None) or "float32"
    inputs = _map_shapes(shapes, lambda shape: keras.KerasTensor((None, *shape[1:]), dtype=dtype))
    try:
        return inputs, model(inputs)
    except Exception as error:
        raise ModelError(
            f"The model's outputs must be known without running it, which failed: {error}", fix=NOTHING_KNOWN
        ) from error


def _single(struct: Any) -> Any:
    return struct[0] if isinstance(struct, list | tuple) and len(struct) == 1 else struct


def _map_shapes(shapes: Any, make: Any) -> Any:
    if isinstance(shapes, dict):
        return {name: _map_shapes(shape, make) for name, shape in shapes.items()}
    if shapes and isinstance(shapes[0], list | tuple):
        return [_map_shapes(shape, make) for shape in shapes]
    return make(tuple(shapes))


def _input_names(struct: Any) -> list[str]:
    import keras

    if isinstance(struct, dict):
        return _paths(struct)
    names = [str(symbol.name) for symbol in keras.tree.flatten(struct)]
    # Keras numbers unnamed tensors, and the numbers differ between processes.
    return [f"input_{at}" if name.startswith("keras_tensor") else name for at, name in enumerate(names)]


def _output_names(model: Any, struct: Any) -> list[str]:
    """Return the keys of a dictionary of outputs, else the names of the layers they come from."""
    import keras

    if isinstance(struct, dict):
        return _paths(struct)
    named = getattr(model, "output_names", None)
    count = len(keras.tree.flatten(struct))
    if named and len(named) == count and len(set(named)) == count:
        return [str(name) for name in named]
    return [f"output_{at}" for at in range(count)]


def _paths(struct: Any) -> list[str]:
    import keras

    return [".".join(str(step) for step in path) for path, _ in keras.tree.flatten_with_path(struct)]


def _tensor(name: str, symbol: Any) -> Tensor:
    shape = symbol.shape
    dtype = "sparse" if getattr(symbol, "sparse", False) else str(symbol.dtype)
    dtype = BYTES if dtype == "string" else dtype
    if shape is None:
        return Tensor(name=name, dtype=dtype)
    if not shape:
        return Tensor(name=name, dtype=dtype, shape=(), has_rows=False)
    return Tensor(
        name=name,
        dtype=dtype,
        shape=tuple(shape[1:]),
        rows=shape[0],
        is_ragged=bool(getattr(symbol, "ragged", False)),
    )
