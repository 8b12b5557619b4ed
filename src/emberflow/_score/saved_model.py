"""The signatures of a SavedModel, read from ``saved_model.pb`` itself.

Neither TensorFlow nor the variables are needed, so a driver without TensorFlow knows the inputs and outputs of a
model of any size in a millisecond. Only the few fields of the protocol buffers that describe them are read; graphs
are skipped, not parsed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from emberflow._feed.element_types import BYTES
from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow.errors import ModelError

FILE = "saved_model.pb"
INIT_OP = "__saved_model_init_op"  # stored like a signature, but not one

# tensorflow/core/framework/types.proto
_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: BYTES,
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    22: "uint32",
    23: "uint64",
}


@dataclass
class Graph:
    """One meta graph: what was saved under one set of tags."""

    tags: frozenset[str] = frozenset()
    version: str = ""
    signatures: dict[str, tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = field(default_factory=dict)


def read_saved_model(data: bytes, *, path: str, signature: str, tags: tuple[str, ...]) -> ModelFacts:
    """Return the inputs and outputs of one signature of a SavedModel.

    Args:
        data: The content of ``saved_model.pb``.
        path: Where the model is, for messages.
        signature: The signature's name.
        tags: The tags of the graph.
    """
    graph = _graph_of(graphs_in(data, path), path, tags)
    if signature not in graph.signatures:
        names = [name for name in graph.signatures if name != INIT_OP]
        raise ModelError(
            f"The signature must be one of the model's. Received: signature={signature!r}; {path} has: "
            f"{', '.join(names) or 'none'}.",
            fix=f'Pass signature="{names[0]}".'
            if names
            else "Save the model with signatures=..., or model.export().",
        )
    inputs, outputs = graph.signatures[signature]
    return ModelFacts(
        kind="saved_model",
        inputs=inputs,
        outputs=outputs,
        signature=signature,
        tags=tags,
        versions=(("tensorflow", graph.version),) if graph.version else (),
    )


def graphs_in(data: bytes, path: str) -> list[Graph]:
    """Return all meta graphs with their tags and signatures."""
    try:
        return [_graph(value) for number, value in _fields(memoryview(data)) if number == 2]
    except (IndexError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} must hold a SavedModel. Received: a {FILE} that cannot be read ({error}).",
            fix="Save the model again: model.export(path) or tf.saved_model.save(model, path).",
        ) from error


def _graph_of(graphs: list[Graph], path: str, tags: tuple[str, ...]) -> Graph:
    for graph in graphs:
        if graph.tags == frozenset(tags):
            return graph
    known = " or ".join(str(tuple(sorted(graph.tags))) for graph in graphs)
    raise ModelError(
        f"The tags must be those of one of the model's graphs. Received: tags={tuple(tags)}; {path} has: {known}.",
        fix=f"Pass tags={tuple(sorted(graphs[0].tags))}." if graphs else "Save the model again.",
    )


def _graph(data: memoryview) -> Graph:
    graph = Graph()
    for number, value in _fields(data):
        if number == 1:
            info = list(_fields(value))
            graph.tags = frozenset(_text(tag) for at, tag in info if at == 4)
            graph.version = next((_text(version) for at, version in info if at == 5), "")
        elif number == 5:
            name, signature = _entry(value)
            graph.signatures[name] = _signature(signature)
    return graph


def _signature(data: memoryview) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    sides: dict[int, list[Tensor]] = {1: [], 2: []}
    for number, value in _fields(data):
        if number in sides:
            sides[number].append(_tensor(*_entry(value)))
    inputs, outputs = (tuple(sorted(side, key=lambda tensor: tensor.name)) for side in sides.values())
    return inputs, outputs


def _tensor(name: str, data: memoryview) -> Tensor:
    found: dict[int, Any] = dict(_fields(data))
    dtype = _DTYPES.get(found.get(2, 0), f"dtype {found.get(2, 0)}")
    if 4 in found:
        dtype = "sparse"
    dims = _dims(found.get(3, memoryview(b"")))
    if dims is None:
        return Tensor(name=name, dtype=dtype)
    if not dims:
        return Tensor(name=name, dtype=dtype, shape=(), has_rows=False)
    return Tensor(name=name, dtype=dtype, shape=tuple(dims[1:]), rows=dims[0], is_ragged=5 in found)


def _dims(data: memoryview) -> list[int | None] | None:
    """Return the dimensions of a TensorShapeProto, or None for an unknown rank."""
    dims: list[int | None] = []
    for number, value in _fields(data):
        if number == 3 and value:
            return None
        if number == 2:
            size = dict(_fields(value)).get(1, 0)
            dims.append(None if size >> 63 else size)  # -1 as an unsigned number
    return dims


def _entry(data: memoryview) -> tuple[str, memoryview]:
    """Return key and value of one entry of a map."""
    found: dict[int, Any] = dict(_fields(data))
    return _text(found.get(1, b"")), found.get(2, memoryview(b""))


def _text(data: Any) -> str:
    return str(data, "utf-8")


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field: integers as they are, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(data):
            raise ValueError(f"the file ends within a field at byte {at}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError(f"a number without an end at byte {at}")
