"""What judges JSON Schemas: this process for plain ones, a child process with limits for all others."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import BadSchema, BadValue, Overloaded
from headwater.schemas.encoding import Codec, TooMuchWork, codec
from headwater.schemas.jsonschema import judge, judging
from headwater.schemas.parsing import Parsed, SchemaKind, Source, parse
from tests.support.promise import promise

DRAFT = "https://json-schema.org/draft/2020-12/schema"


class Here:
    """Fails where a schema or a value is judged in this process that is not plain."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        ask = judging.ask
        patch.setattr(judging, "ask", lambda *question: self.asked.append(question[0]) or ask(*question))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(monkeypatch)


@pytest.fixture(autouse=True)
def _children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    program = tmp_path / "judge.py"
    text = Path(judge.__file__).read_text()
    assert "MAX_SECONDS = 1\n" in text
    program.write_text(text.replace("MAX_SECONDS = 1\n", "MAX_SECONDS = 0\n"))  # the second that has begun
    monkeypatch.setattr(judge, "__file__", str(program))
    children = judging.Children()
    monkeypatch.setattr(judging, "_CHILDREN", children)
    yield
    children.close()


def parsed(schema: Any) -> Parsed:
    return parse(Source(SchemaKind.JSON, json.dumps(schema)))


def of(schema: Any) -> Codec:
    return codec(parsed(schema))


def doubling(depth: int, keyword: str) -> Any:
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, depth):
        parts[f"d{level}"] = {keyword: [{"$ref": f"#/definitions/d{level - 1}"}] * 2}
    return {"definitions": parts, "$ref": f"#/definitions/d{depth - 1}"}


def unevaluated(depth: int) -> Any:
    schema: Any = {"properties": {"a": {}}}
    for _ in range(depth):
        schema = {"unevaluatedProperties": False, "allOf": [schema]}
    return {"$schema": DRAFT, **schema}


TREE = {"type": "object", "properties": {"n": {"$ref": "#"}}, "additionalProperties": False}
BOTH = {"anyOf": [{"properties": {"n": {"$ref": "#"}}, "required": ["a"]}, {"properties": {"n": {"$ref": "#"}}}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{4}$"}}}, {"a": "abcd"}),
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"enum": [1, 2]}}]}, [1, 2, 1]),
        (doubling(4, "allOf"), "x"),
        (True, 5),
    ],
)
def test_plain_schemas_are_judged_here(here: Here, schema: Any, value: Any) -> None:
    codec = of(schema)
    assert codec.decode(codec.encode(value)) == value
    assert not here.asked


@promise("S4")
@pytest.mark.parametrize(
    ("schema", "value"),
    [(unevaluated(30), {"a": 1}), (doubling(30, "oneOf"), "x")],
)
def test_a_value_that_is_tried_in_many_ways_is_refused(here: Here, schema: Any, value: Any) -> None:
    codec = of(schema)
    with pytest.raises(TooMuchWork, match="needs too much time or memory"):
        codec.encode(value)
    assert here.asked[-1] == "value"
    assert of(TREE).encode({"n": {"n": {}}})  # with a new child


@promise("S4")
def test_values_behind_one_that_took_its_time_are_not_judged(here: Here) -> None:
    codec = of(unevaluated(30))
    with pytest.raises(TooMuchWork):
        codec.decode(b'{"a": 1}')
    asked = len(here.asked)
    for _ in range(100):
        with pytest.raises(TooMuchWork, match="one before it"):
            codec.decode(b'{"a": 1}')
    assert len(here.asked) == asked


@pytest.mark.parametrize(
    ("schema", "good", "bad", "place"),
    [
        (TREE, {"n": {"n": {}}}, {"n": {"n": 1}}, "/n/n"),
        (BOTH, {"n": {"a": 1}}, None, ""),
        ({"items": {"pattern": "^(a|b)+$"}}, ["ab"], ["ab", "c"], "/1"),
        ({"items": {"type": "integer"}}, [1] * 400_000, ["x"] * 400_000, "/0"),
        (unevaluated(2), {"a": 1}, {"b": 1}, "the top"),
    ],
)
def test_the_child_says_what_the_process_says(here: Here, schema: Any, good: Any, bad: Any, place: str) -> None:
    codec = of(schema)
    assert codec.decode(codec.encode(good)) == good
    if place:
        with pytest.raises(BadValue, match=f"The value at {place} does not fit the schema"):
            codec.encode(bad)
    assert "value" in here.asked


@promise("S4")
def test_a_large_schema_is_judged_by_the_child(here: Here) -> None:
    """The library holds the interpreter's lock for half a second for 800 KB."""
    names = {f"field_{number:05}": {"type": "string", "description": "x" * 20} for number in range(12_000)}
    large = {"type": "object", "properties": names}
    assert len(json.dumps(large)) > 800_000
    assert parsed(large).canonical
    assert here.asked == ["check", "compile"]
    names["field_00000"] = {"type": "strin"}
    with pytest.raises(BadSchema, match="at /properties/field_00000/type"):
        parsed(large)


def test_a_pattern_that_cannot_be_compiled_is_a_flaw(here: Here) -> None:
    with pytest.raises(BadSchema, match="The JSON Schema, at /pattern: "):
        parsed({"pattern": "(" * 5})
    assert here.asked == ["check"]


def test_names_are_matched_by_the_child(here: Here) -> None:
    assert judging.matches("^a+$", "aaa")
    assert not here.asked
    assert judging.matches("^(a|b)+$", "ab")
    assert not judging.matches("^(a|b)+$", "c")
    assert here.asked == ["matches", "matches"]


def test_a_child_that_died_is_replaced(here: Here) -> None:
    codec = of(TREE)
    assert codec.encode({})
    child = judging._CHILDREN._free.queue[-1]
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert codec.encode({})


def test_a_child_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PATIENCE", 0.05)
    monkeypatch.setattr(judging, "readable", lambda *_: False)
    with pytest.raises(Overloaded, match="did not answer"):
        parsed({"pattern": "^(a|b)+$"})
    assert all(child is None for child in judging._CHILDREN._free.queue)


def test_threads_share_the_children(here: Here) -> None:
    codec, made = of(TREE), []
    threads = [threading.Thread(target=lambda: made.append(codec.encode({"n": {}}))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [b'{"n":{}}'] * 8
    assert len(judging._CHILDREN._free.queue) == judging.CHILDREN
