"""TensorFlow's Example messages, made from their description, so that unit tests need no TensorFlow."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_KINDS = descriptor_pb2.FieldDescriptorProto


def _field(message: Any, name: str, number: int, kind: int, **more: Any) -> None:
    message.field.add(name=name, number=number, type=kind, label=more.pop("label", 1), **more)


def _map(file: Any, name: str, field: str, value: str) -> None:
    message = file.message_type.add(name=name)
    entry = message.nested_type.add(name="".join(word.capitalize() for word in field.split("_")) + "Entry")
    entry.options.map_entry = True
    _field(entry, "key", 1, _KINDS.TYPE_STRING)
    _field(entry, "value", 2, _KINDS.TYPE_MESSAGE, type_name=f".ef.{value}")
    _field(message, field, 1, _KINDS.TYPE_MESSAGE, label=3, type_name=f".ef.{name}.{entry.name}")


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="ef_example.proto", package="ef", syntax="proto3")
    lists = (
        ("BytesList", _KINDS.TYPE_BYTES),
        ("FloatList", _KINDS.TYPE_FLOAT),
        ("Int64List", _KINDS.TYPE_INT64),
    )
    for name, kind in lists:
        _field(file.message_type.add(name=name), "value", 1, kind, label=3)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), 1
    ):
        _field(feature, name, number, _KINDS.TYPE_MESSAGE, type_name=f".ef.{kind}", oneof_index=0)
    features = file.message_type.add(name="FeatureList")
    _field(features, "feature", 1, _KINDS.TYPE_MESSAGE, label=3, type_name=".ef.Feature")
    _map(file, "Features", "feature", "Feature")
    _map(file, "FeatureLists", "feature_list", "FeatureList")
    example = file.message_type.add(name="Example")
    _field(example, "features", 1, _KINDS.TYPE_MESSAGE, type_name=".ef.Features")
    sequence = file.message_type.add(name="SequenceExample")
    _field(sequence, "context", 1, _KINDS.TYPE_MESSAGE, type_name=".ef.Features")
    _field(sequence, "feature_lists", 2, _KINDS.TYPE_MESSAGE, type_name=".ef.FeatureLists")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Example", "SequenceExample", "Feature")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ef.{name}")) for name in names}


_MESSAGES = _messages()
Example: Any = _MESSAGES["Example"]
SequenceExample: Any = _MESSAGES["SequenceExample"]


def fill(feature: Any, kind: str | None, values: list[Any]) -> None:
    """Set a feature's kind and values."""
    if kind is None:
        return
    name = {"bytes": "bytes_list", "float": "float_list", "int": "int64_list"}[kind]
    getattr(feature, name).SetInParent()
    getattr(feature, name).value.extend(values)


def content(feature: Any) -> tuple[str | None, list[Any]]:
    """Return a feature's kind and values."""
    name = feature.WhichOneof("kind")
    if name is None:
        return None, []
    kind = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int"}[name]
    return kind, list(getattr(feature, name).value)
