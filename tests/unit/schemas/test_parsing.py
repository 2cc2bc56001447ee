"""Limits that hold for every kind of schema."""

from __future__ import annotations

import json

import pytest

from headwater.errors import BadSchema
from headwater.schemas import texts
from headwater.schemas.parsing import SchemaKind, Source, parse


def refusal(text: str, *references: tuple[str, str], kind: SchemaKind = SchemaKind.AVRO) -> str:
    with pytest.raises(BadSchema) as caught:
        parse(Source(kind, text, references))
    return str(caught.value)


def test_text_that_is_too_long() -> None:
    assert "more than 1000000" in refusal('"' + "x" * texts.MAX_TEXT + '"')


def test_reference_that_is_too_long() -> None:
    assert "Reference 'r'" in refusal('"string"', ("r", " " * (texts.MAX_TEXT + 1)))


def test_too_many_references() -> None:
    references = tuple((f"r{at}", '"int"') for at in range(texts.MAX_REFERENCES + 1))
    assert "1001 references" in refusal('"string"', *references)


def test_references_that_are_too_long_together() -> None:
    references = tuple((f"r{at}", " " * texts.MAX_TEXT) for at in range(8))
    assert "and its references" in refusal('"string"', *references)


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "not JSON"),
        ("{", "line 1, column 2"),
        ('{"type": NaN}', "NaN"),
        ('{"type": "fixed", "name": "f", "size": ' + "9" * 5000 + "}", "not JSON"),
        ('{"type": "fixed", "name": "f", "size": ' + "9" * 400 + "}", "too large"),
        ('{"type": "int", "x": 1e999}', "/x: the number is too large"),
        ('{"type": "int", "x": "\\ud800"}', "/x: a string has half of a surrogate pair"),
        ('{"type": "int", "\\ud800": 1}', "half of a surrogate pair"),
        ("[" * 100_000, "nested deeper"),
        ("[" * 500 + "]" * 500, "nested deeper than 400"),
        ('{"' + "x" * 9_000 + '": {"' + "y" * 1_000 + '": 1}}', "have more than 10000 characters"),
        ('{"type": "' + "x" * 9_000 + '"}', "xxx..."),
        ("[" + "1," * texts.MAX_NODES + "1]", "more than 200000 values"),
    ],
)
def test_json_beyond_the_limits(text: str, flaw: str) -> None:
    assert flaw in refusal(text)


def nested(levels: int) -> str:
    """A record in a union in a list in a record, and so on."""
    kind: object = "int"
    for at in range(levels):
        field = {"name": "f", "type": ["null", {"type": "array", "items": kind}]}
        kind = {"type": "record", "name": f"R{at}", "fields": [field]}
    return json.dumps(kind)


def test_forty_levels_of_records_in_unions_in_lists_are_not_too_deep() -> None:
    assert parse(Source(SchemaKind.AVRO, nested(49))).normalized
    assert "deeper than 150 levels" in refusal(nested(51))
    plain = "int"
    for at in range(90):
        plain = {"type": "record", "name": f"R{at}", "fields": [{"name": "f", "type": plain}]}  # type: ignore[assignment]
    assert parse(Source(SchemaKind.AVRO, json.dumps(plain))).normalized


def deep(levels: int) -> str:
    schema: object = {"type": "integer"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return json.dumps(schema)


def test_deep_json_schemas() -> None:
    assert parse(Source(SchemaKind.JSON, deep(100))).normalized
    assert "nested too deeply" in refusal(deep(190), kind=SchemaKind.JSON)


def test_schema_that_exceeds_the_stack_of_its_caller() -> None:
    text = deep(100)

    def at(depth: int) -> str:
        return at(depth - 1) if depth else refusal(text, kind=SchemaKind.JSON)

    assert "nested" in at(850)


def test_messages_stay_short() -> None:
    assert len(refusal('{"' + "x" * 9_000 + '": "\\ud800"}')) < 1_000
