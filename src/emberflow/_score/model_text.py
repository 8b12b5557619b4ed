"""A stored model as text for people: its inputs, its outputs, the library that created it."""

from collections.abc import Iterator, Sequence

from emberflow import storage
from emberflow._score.model_facts import Tensor
from emberflow._score.model_source import LoadOptions, describe_path, is_keras_file, model_not_found
from emberflow._score.model_versions import model_at
from emberflow._score.saved_model import FILE, INIT_OP, graphs_in


def show_model(path: str) -> str:
    """Return a few lines about the model at a path: all signatures of a SavedModel, or a Keras file's tensors.

    The model is not run, and the variables of a SavedModel are not read.
    """
    if not storage.exists(path):
        raise model_not_found(path)
    path = model_at(path)
    return "\n".join(_keras_lines(path) if is_keras_file(path) else _saved_model_lines(path))


def _keras_lines(path: str) -> Iterator[str]:
    facts = describe_path(path, LoadOptions())
    yield f"{path}: Keras model, loaded here by " + ", ".join(" ".join(pair) for pair in facts.versions)
    yield from _tensors(facts.inputs, facts.outputs)


def _saved_model_lines(path: str) -> Iterator[str]:
    file = storage.join(path, FILE)
    if not storage.exists(file):
        raise model_not_found(path)
    with storage.reading_folder(path):
        content = storage.read_bytes(file)
    for graph in graphs_in(content, path):
        writer = f", created by TensorFlow {graph.version}" if graph.version else ""
        yield f"{path}: SavedModel with tags {', '.join(sorted(graph.tags))}{writer}"
        for name in sorted(set(graph.signatures) - {INIT_OP}):
            yield f"signature {name}"
            yield from _tensors(*graph.signatures[name])


def _tensors(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Iterator[str]:
    yield from (f"  input   {tensor}" for tensor in inputs)
    yield from (f"  output  {tensor}" for tensor in outputs)
