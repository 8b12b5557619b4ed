"""Signatures out of saved_model.pb, written here by hand as the format has it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberflow._score.model_facts import ModelFacts, Tensor
from emberflow._score.saved_model import graphs_in, read_saved_model
from emberflow.errors import ModelError


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(dtype: int, dims: list[int] | None) -> bytes:
    shape = field(3, 1) if dims is None else b"".join(field(2, field(1, size)) for size in dims)
    return field(1, b"serving:0") + field(2, dtype) + field(3, shape)


def entry(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def signature(inputs: dict[str, bytes], outputs: dict[str, bytes]) -> bytes:
    sides = ((1, inputs), (2, outputs))
    return b"".join(field(side, entry(name, info)) for side, infos in sides for name, info in infos.items())


def graph(tags: list[str], signatures: dict[str, bytes]) -> bytes:
    info = b"".join(field(4, tag.encode()) for tag in tags) + field(5, b"2.21.0")
    body = b"".join(field(5, entry(name, value)) for name, value in signatures.items())
    return field(2, field(1, info) + field(2, b"the graph itself, never looked at") + body)


ONE = signature({"x": tensor(1, [-1, 28, 28])}, {"b": tensor(9, [-1]), "a": tensor(7, [-1, -1])})
MODEL = field(1, 1) + graph(["serve"], {"serving_default": ONE}) + graph(["serve", "gpu"], {"other": ONE})


def read(data: bytes, signature: str = "serving_default", tags: tuple[str, ...] = ("serve",)) -> ModelFacts:
    return read_saved_model(data, path="/models/m", signature=signature, tags=tags)


def test_reads_names_dtypes_and_shapes() -> None:
    facts = read(MODEL)
    assert facts.inputs == (Tensor(name="x", dtype="float32", shape=(28, 28)),)
    assert facts.outputs == (
        Tensor(name="a", dtype="bytes", shape=(None,)),
        Tensor(name="b", dtype="int64", shape=()),
    )
    assert facts.versions == (("tensorflow", "2.21.0"),)


def test_reads_the_graph_of_the_tags_in_any_order() -> None:
    assert read(MODEL, signature="other", tags=("gpu", "serve")).signature == "other"


def test_knows_fixed_rows_scalars_and_unknown_ranks() -> None:
    odd = signature({"x": tensor(2, [8, 3])}, {"s": tensor(2, []), "u": tensor(2, None)})
    facts = read(field(1, 1) + graph(["serve"], {"serving_default": odd}))
    assert facts.inputs[0].rows == 8
    assert [tensor.has_rows for tensor in facts.outputs] == [False, True]
    assert facts.outputs[1].shape is None


def test_an_unknown_signature_names_those_that_exist() -> None:
    with pytest.raises(
        ModelError, match=r"Received: signature='predict'; /models/m has: serving_default"
    ) as caught:
        read(MODEL, signature="predict")
    assert 'signature="serving_default"' in caught.value.fix


def test_unknown_tags_name_those_that_exist() -> None:
    with pytest.raises(ModelError, match=r"\('serve',\) or \('gpu', 'serve'\)"):
        read(MODEL, tags=("train",))


@settings(deadline=None)
@given(st.integers(0, len(MODEL) - 1))
def test_a_cut_file_is_an_error_or_less_of_it_never_something_else(length: int) -> None:
    try:
        graphs = graphs_in(MODEL[:length], "/models/m")
    except ModelError:
        return
    assert len(graphs) < 2


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_nonsense_is_a_model_error_or_no_graph(data: bytes) -> None:
    try:
        graphs_in(data, "/models/m")
    except ModelError:
        return


def test_facts_survive_json() -> None:
    facts = read(MODEL)
    assert ModelFacts.from_json(facts.to_json()) == facts
