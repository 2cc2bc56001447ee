"""JSON Schemas: what is accepted, what is refused and where, how references are put in."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import BadSchema
from headwater.schemas.jsonschema import bundling
from headwater.schemas.jsonschema.bundling import follow
from headwater.schemas.parsing import JsonModel, Parsed, SchemaKind, Source, parse


def parsed(schema: Any, *references: tuple[str, Any]) -> Parsed:
    texts = tuple((name, json.dumps(one)) for name, one in references)
    return parse(Source(SchemaKind.JSON, json.dumps(schema), texts))


def model(schema: Any, *references: tuple[str, Any]) -> JsonModel:
    found = parsed(schema, *references).model
    assert isinstance(found, JsonModel)
    return found


def takes(found: JsonModel, value: Any) -> bool:
    """Whether another library takes a value, given only the bundle."""
    return jsonschema_rs.is_valid(found.schema, value)


@pytest.mark.parametrize(
    ("named", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", "4"),
        ("http://json-schema.org/draft-06/schema", "6"),
        ("https://json-schema.org/draft-07/schema#", "7"),
        ("https://json-schema.org/draft/2019-09/schema", "2019-09"),
        ("https://json-schema.org/draft/2020-12/schema", "2020-12"),
        ("https://example.org/mine", "7"),
        (None, "7"),
    ],
)
def test_drafts(named: str | None, draft: str) -> None:
    schema = {"type": "object"} if named is None else {"$schema": named, "type": "object"}
    assert model(schema).draft == draft
    assert takes(model(schema), {})


@pytest.mark.parametrize(
    ("schema", "flaw"),
    [
        ([], "The JSON Schema, at the top: a JSON Schema is an object or a boolean"),
        ("string", "an object or a boolean"),
        ({"type": "strin"}, "at /type: "),
        ({"properties": {"a": {"minLength": -1}}}, "at /properties/a/minLength: "),
        ({"properties": {"a/b": {"required": "x"}}}, "at /properties/a~1b/required: "),
        ({"pattern": "("}, "("),
        ({"$ref": 5}, "at /$ref: "),
        ({"$ref": "#/definitions/none"}, "at /$ref: '#/definitions/none' refers to nothing"),
        ({"items": {"$ref": "other.json"}}, "at /items/$ref: 'other.json' refers to nothing"),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, "refers to nothing"),
        ({"$ref": "file:///etc/passwd"}, "refers to nothing"),
        ({"$ref": "http://[half"}, "[half"),
        ({"$ref": "#/enum", "enum": [1]}, "refers to nothing"),
        ({"$ref": "#"}, "the references lead in a circle"),
        ({"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}, "lead in a circle"),
    ],
)
def test_flaws_are_named_with_their_place(schema: Any, flaw: str) -> None:
    with pytest.raises(BadSchema) as caught:
        parsed(schema)
    assert flaw in str(caught.value)


def test_flaw_of_a_reference() -> None:
    with pytest.raises(BadSchema, match=r"Reference 'a.json', at /type: "):
        parsed({"$ref": "a.json"}, ("a.json", {"type": 5}))
    with pytest.raises(BadSchema, match=r"Reference 'a.json', at /items/\$ref: '#/x' refers to nothing"):
        parsed({"$ref": "a.json"}, ("a.json", {"items": {"$ref": "#/x"}}))


def test_booleans_are_schemas() -> None:
    assert model(True).schema is True
    assert model(False).schema is False


def test_references_by_name_and_by_id() -> None:
    place: dict[str, Any] = {"$id": "https://example.org/place", "properties": {"x": {"$ref": "#/definitions/n"}}}
    place["definitions"] = {"n": {"type": "integer"}}
    trip = {
        "type": "object",
        "properties": {
            "a": {"$ref": "place.json"},
            "b": {"$ref": "https://example.org/place"},
            "c": {"$ref": "place.json#/definitions/n"},
            "d": {"$ref": "https://example.org/place#/definitions/n"},
        },
        "definitions": {"reference-1": {}},
    }
    found = model(trip, ("place.json", place))
    assert takes(found, {"a": {"x": 1}, "b": {"x": 1}, "c": 1, "d": 1})
    for wrong in ({"a": {"x": "1"}}, {"b": {"x": "1"}}, {"c": "1"}, {"d": "1"}):
        assert not takes(found, wrong)


def test_reference_that_refers_to_another_one_beside_it() -> None:
    found = model(
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://e.org/d/m", "$ref": "./other.json"},
        ("https://e.org/d/other.json", {"items": {"$ref": "third.json"}}),
        ("https://e.org/d/third.json", {"type": "integer"}),
    )
    assert takes(found, [1])
    assert not takes(found, ["1"])


def test_names_inside_of_a_schema() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/root",
        "properties": {
            "a": {"$ref": "#short"},
            "b": {"$ref": "inner"},
            "c": {"$ref": "inner#/$defs/deep"},
            "d": {"$dynamicRef": "#moving"},
        },
        "$defs": {
            "s": {"$anchor": "short", "type": "string"},
            "i": {"$id": "inner", "type": "integer", "$defs": {"deep": {"type": "boolean"}}},
            "m": {"$dynamicAnchor": "moving", "type": "null"},
        },
    }
    found = model(schema)
    for right in ({"a": "x"}, {"b": 1}, {"c": True}, {"d": None}):
        assert takes(found, right)
    for wrong in ({"a": 1}, {"b": "x"}, {"c": 1}, {"d": 1}):
        assert not takes(found, wrong)
    urn = model({**schema, "$id": "urn:example:root"})
    assert takes(urn, {"a": "x"})
    assert not takes(urn, {"a": 1})
    old = model({"properties": {"a": {"$ref": "#short"}}, "definitions": {"s": {"$id": "#short", "type": "string"}}})
    assert takes(old, {"a": "x"})
    assert not takes(old, {"a": 1})


def test_properties_with_the_names_of_keywords() -> None:
    names = {"$ref": {"type": "string"}, "$id": {"type": "string"}, "id": {"type": "integer"}, "items": {}}
    found = model({"properties": names, "enum": [{"$ref": "nowhere"}], "default": {"$ref": "nowhere"}})
    assert found.schema["properties"] == names
    assert found.schema["enum"] == [{"$ref": "nowhere"}]


def test_schema_outside_of_the_keywords_for_schemas() -> None:
    inner = {"properties": {"next": {"$ref": "#/components/schemas/A%20b%25"}, "n": {"$ref": "n"}}}
    parts = {"schemas": {"A b%": inner}}
    found = model({"$ref": "#/components/schemas/A%20b%25", "components": parts}, ("n", {"type": "integer"}))
    assert takes(found, {"next": {"next": {"n": 1}}})
    assert not takes(found, {"next": {"next": {"n": "1"}}})
    assert "next" in follow(found.schema, found.schema["$ref"])["properties"]


def test_schemas_outside_of_the_keywords_that_are_inside_of_each_other() -> None:
    """In a reference, a part of a part is referred to before and after the part itself."""
    whole = {"properties": {"x": {"items": {"$ref": "#/parts/n"}}}}
    other = {
        "properties": {
            "a": {"$ref": "#/parts/whole/properties/x"},
            "b": {"$ref": "#/parts/whole"},
            "c": {"$ref": "#/parts/whole/properties/x"},
            "d": {"$ref": "#/parts/whole/properties/x/items"},
        },
        "parts": {"whole": whole, "n": {"type": "integer"}},
    }
    found = model({"$ref": "other"}, ("other", other))
    assert takes(found, {"a": [1], "b": {"x": [1]}, "c": [1], "d": 1})
    for wrong in ({"a": ["1"]}, {"b": {"x": ["1"]}}, {"c": ["1"]}, {"d": "1"}):
        assert not takes(found, wrong)


def test_references_in_a_circle_with_schemas_in_between() -> None:
    one, two = {"properties": {"two": {"$ref": "two"}}}, {"properties": {"one": {"$ref": "one"}}, "required": ["one"]}
    found = model({"$ref": "one"}, ("one", one), ("two", two))
    assert takes(found, {"two": {"one": {}}})
    assert not takes(found, {"two": {}})


def test_references_that_double_at_every_level_stay_small() -> None:
    names = [(f"r{at}", {"items": [{"$ref": f"r{at - 1}"}, {"$ref": f"r{at - 1}"}]}) for at in range(1, 60)]
    found = model({"$ref": "r59"}, ("r0", {"type": "integer"}), *names)
    assert len(json.dumps(found.schema)) < 20_000


def test_many_properties() -> None:
    schema = {"properties": {f"p{at}": {"$ref": "#/definitions/n"} for at in range(10_000)}}
    found = model({**schema, "definitions": {"n": {"type": "integer"}}})
    assert found.schema["properties"]["p9999"] == {"$ref": "#/definitions/n"}


def test_number_of_names_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "MAX_NAMES", 10)
    with pytest.raises(BadSchema, match="have more than 10 names"):
        parsed({"definitions": {f"d{at}": {"$id": f"#n{at}"} for at in range(20)}})


def test_texts() -> None:
    one = parse(Source(SchemaKind.JSON, ' { "type" : "object",\n "properties": {"b": {}, "a": {"x": [1, 2.5]}} } '))
    assert one.canonical == '{"type":"object","properties":{"b":{},"a":{"x":[1,2.5]}}}'
    assert one.normalized == '{"properties":{"a":{"x":[1,2.5]},"b":{}},"type":"object"}'


TREES = st.recursive(
    st.one_of(st.booleans(), st.just({}), st.sampled_from(["string", "#", "#/definitions/a", "other", "a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["$ref", "$id", "type", "items", "properties", "definitions", "a", "not", "allOf", "enum"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(TREES, TREES)
def test_anything_is_parsed_or_refused(schema: Any, other: Any) -> None:
    try:
        found = model(schema, ("other", other))
    except BadSchema as flaw:
        assert " at " in str(flaw)
        return
    jsonschema_rs.is_valid(found.schema, {"a": [1]})
    assert json.loads(parsed(schema, ("other", other)).canonical) == schema
