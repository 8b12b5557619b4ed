"""The columns of each input of the model: declared by the user, or found by name."""

from collections.abc import Mapping, Sequence

from emberflow._feed.arrays import LeafColumn, find_leaf_columns
from emberflow._score.model_facts import ModelFacts
from emberflow.errors import ConfigError

Inputs = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


def match_columns(
    leaves: Sequence[LeafColumn], model: ModelFacts, inputs: Inputs
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each input."""
    if model.kind == "function":
        return _assign_free(leaves, inputs)
    names = [tensor.name for tensor in model.inputs]
    if isinstance(inputs, Mapping):
        if sorted(inputs) != sorted(names):
            raise _wrong_inputs(model, f"inputs for {', '.join(inputs) or 'none'}", leaves)
        return {name: _columns(inputs[name]) for name in names}
    if inputs is not None:
        if len(names) != 1:
            raise _wrong_inputs(model, f"inputs={inputs!r}", leaves)
        return {names[0]: _columns(inputs)}
    known = [leaf.name for leaf in leaves]
    if all(name in known for name in names):
        return {name: (name,) for name in names}
    if len(names) == len(known) == 1:
        return {names[0]: (known[0],)}
    raise _wrong_inputs(model, "inputs=None, and no columns of these names", leaves)


def _assign_free(leaves: Sequence[LeafColumn], inputs: Inputs) -> dict[str, tuple[str, ...]]:
    """Return the columns of a function, which does not describe its inputs."""
    if isinstance(inputs, Mapping):
        return {name: _columns(columns) for name, columns in inputs.items()}
    if inputs is None and len(leaves) == 1:
        inputs = leaves[0].name
    if inputs:
        return {name: (name,) for name in _columns(inputs)}
    raise ConfigError(
        f"A function needs the names of its columns. Received: inputs={inputs!r}.",
        fix='Pass inputs="column" for one array, or inputs={"name": "column"} for a dictionary of arrays.',
    )


def _columns(value: str | Sequence[str]) -> tuple[str, ...]:
    columns = (value,) if isinstance(value, str) else tuple(value)
    if not columns or not all(isinstance(column, str) for column in columns):
        raise ConfigError(
            f"`inputs` must name columns. Received: {value!r}.",
            fix='Pass inputs={"input": "column"}, or a list of columns to put side by side.',
        )
    return columns


def _wrong_inputs(model: ModelFacts, received: str, leaves: Sequence[LeafColumn]) -> ConfigError:
    wanted = ", ".join(str(tensor) for tensor in model.inputs)
    example = ", ".join(f'"{tensor.name}": "column"' for tensor in model.inputs)
    return ConfigError(
        f"Each input of the model must have a column. Inputs: {wanted}. Received: {received}; the DataFrame has: "
        f"{', '.join(leaf.name for leaf in leaves)}.",
        fix=f"Pass inputs={{{example}}}.",
    )


def leaf_of(leaves: Sequence[LeafColumn], name: str) -> LeafColumn:
    found = find_leaf_columns(leaves, name)
    if len(found) > 1:
        raise ConfigError(
            f"An input must come from one column. Received: {name!r}, a struct with the fields "
            f"{', '.join(leaf.name for leaf in found)}.",
            fix=f"Name its fields: inputs=[{', '.join(repr(leaf.name) for leaf in found)}].",
        )
    return found[0]
