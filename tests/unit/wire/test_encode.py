"""Our encoder and kio's writer give the same bytes, for every message of the protocol."""

from __future__ import annotations

import io
import random
import typing
import uuid
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_writer

from headwater.wire.build import builder
from headwater.wire.encode import encoder, item_type, template, varint
from headwater.wire.messages import known_versions
from tests.support.promise import promise

PROMISES = ("K1",)

MESSAGES = [(key, version) for key in api_key_map for version in known_versions(key)]


_hints = cache(typing.get_type_hints)
"""The types of an entity's fields. Each is asked for thousands of times."""


def _scalar(kind: str, rng: random.Random) -> Any:
    bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "timedelta_i32": 31, "timedelta_i64": 40}
    if kind in bits:
        return rng.getrandbits(bits[kind])
    return {
        "bool": rng.random() < 0.5,
        "float64": rng.random(),
        "error_code": rng.choice([0, 1, 3, -1, 45]),
        "datetime_i64": rng.getrandbits(41),
        "uuid": uuid.UUID(int=rng.getrandbits(128)),
        "string": "é" * rng.choice([0, 1, 5, 200]),
        "bytes": rng.randbytes(rng.choice([0, 3, 300])),
        "records": rng.randbytes(rng.choice([0, 3, 9000])),
    }[kind]


def _values(entity: type, rng: random.Random) -> dict[str, Any]:
    """Random values for some of an entity's fields."""
    hints = _hints(entity)
    values: dict[str, Any] = {"no_such_field": 1}
    for field in fields(entity):
        if rng.random() < 0.2 or ("tag" in field.metadata and rng.random() < 0.5):
            continue
        kind = hints[field.name]
        inner = [a for a in typing.get_args(kind) if a is not type(None)]
        optional = type(None) in typing.get_args(kind)
        if optional and rng.random() < 0.3:
            values[field.name] = None
            continue
        kind = inner[0] if optional else kind
        if typing.get_origin(kind) is tuple:
            item = typing.get_args(kind)[0]
            values[field.name] = [
                _values(item, rng) if is_dataclass(item) else _scalar(field.metadata["kafka_type"], rng)
                for _ in range(rng.choice([0, 1, 3, 130] if rng.random() < 0.1 else [0, 1, 2]))
            ]
        elif is_dataclass(kind):
            values[field.name] = {**_values(kind, rng)} if "tag" not in field.metadata else _all_set(kind, rng)
        else:
            values[field.name] = _scalar(field.metadata["kafka_type"], rng)
    return values


def _all_set(entity: type, rng: random.Random) -> dict[str, Any]:
    """All fields of a tagged struct, so that it differs from its default, which kio would leave out."""
    values = {field.name: _scalar(field.metadata["kafka_type"], rng) for field in fields(entity)}
    return {**values, fields(entity)[0].name: 77}


@pytest.mark.parametrize("key", sorted(api_key_map), ids=lambda key: api_key_map[key])
def test_same_bytes_as_kio(key: int) -> None:
    for version in known_versions(key):
        entity = load_response_schema(key, version)
        rng = random.Random(version)
        for _ in range(20):
            values = _without_default_tags(entity, _values(entity, rng))
            buffer = io.BytesIO()
            entity_writer(entity)(buffer, builder(entity)(values))
            out: list[Any] = []
            encoder(entity)(values, out)
            assert b"".join(out) == buffer.getvalue(), (entity, values)


@cache
def _default(entity: type) -> Any:
    return builder(entity)({})


def _without_default_tags(entity: type, values: dict[str, Any]) -> dict[str, Any]:
    """kio leaves out tagged fields that have their default; we are never given those."""
    built = builder(entity)(values)
    default = _default(entity)
    hints = _hints(entity)
    kept = {}
    for field in fields(entity):
        if field.name not in values:
            continue
        if "tag" in field.metadata and getattr(built, field.name) == getattr(default, field.name):
            continue
        value = values[field.name]
        item = next((a for a in _leaves(hints[field.name]) if is_dataclass(a)), None)
        if item is not None and isinstance(value, list):
            value = [_without_default_tags(item, v) for v in value]
        elif item is not None and isinstance(value, dict):
            value = _without_default_tags(item, value)
        kept[field.name] = value
    return kept


@cache
def _leaves(kind: Any) -> list[Any]:
    arguments = typing.get_args(kind)
    return [leaf for a in arguments for leaf in _leaves(a)] if arguments else [kind]


@pytest.mark.parametrize(("number", "data"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varint(number: int, data: bytes) -> None:
    assert varint(number) == data


@promise("K3")
@pytest.mark.parametrize("version", range(3, 14))
def test_a_template_gives_the_same_bytes(version: int) -> None:
    """What a broker answers for an accepted batch is packed from a template."""
    partition = item_type(item_type(load_response_schema(0, version), "responses"), "partition_responses")
    holes = ["index", "base_offset", "log_append_time", *(["log_start_offset"] if version >= 5 else [])]
    fill = template(partition, {}, holes)
    for numbers in ([7, 1 << 40, -1, 12], [0, 0, 1_700_000_000_000, 0]):
        plain: list[Any] = []
        encoder(partition)(dict(zip(holes, numbers, strict=False)), plain)
        made: list[Any] = []
        encoder(partition)(fill(*numbers[: len(holes)]), made)
        assert b"".join(made) == b"".join(plain)


@promise("K3")
def test_a_template_has_zeros_between_its_numbers() -> None:
    """Anything else would be lost."""
    partition = item_type(item_type(load_response_schema(0, 9), "responses"), "partition_responses")
    with pytest.raises(ValueError, match="base_offset"):
        template(partition, {"error_code": 1}, ["index", "base_offset"])
