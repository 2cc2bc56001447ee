"""The seven levels, over versions of a schema."""

from __future__ import annotations

import json

import pytest

from headwater.schemas.compatibility import Level, incompatibilities
from headwater.schemas.parsing import Parsed, SchemaKind, Source, parse


def version(*fields: str, default: bool = False) -> Parsed:
    kinds = [{"name": name, "type": "int", **({"default": 0} if default else {})} for name in fields]
    return parse(Source(SchemaKind.AVRO, json.dumps({"type": "record", "name": "R", "fields": kinds})))


ONE, TWO, TWO_DEFAULT = version("a"), version("a", "b"), version("a", "b", default=True)


@pytest.mark.parametrize(
    ("level", "new", "versions", "sides"),
    [
        (Level.NONE, TWO, [ONE], []),
        (Level.BACKWARD, ONE, [], []),
        (Level.BACKWARD, ONE, [TWO], []),
        (Level.BACKWARD, TWO, [ONE], ["new"]),
        (Level.BACKWARD, TWO, [ONE, TWO], []),
        (Level.BACKWARD_TRANSITIVE, TWO, [ONE, TWO], ["new"]),
        (Level.FORWARD, TWO, [ONE], []),
        (Level.FORWARD, ONE, [TWO], ["old"]),
        (Level.FORWARD, ONE, [TWO, ONE], []),
        (Level.FORWARD_TRANSITIVE, ONE, [TWO, ONE], ["old"]),
        (Level.FULL, TWO_DEFAULT, [ONE], []),
        (Level.FULL, TWO, [ONE], ["new"]),
        (Level.FULL, ONE, [TWO], ["old"]),
        (Level.FULL, ONE, [TWO, TWO_DEFAULT], []),
        (Level.FULL_TRANSITIVE, ONE, [TWO, TWO_DEFAULT], ["old"]),
        (Level.FULL, version("b"), [ONE], ["new", "old"]),
    ],
)
def test_levels(level: Level, new: Parsed, versions: list[Parsed], sides: list[str]) -> None:
    found = incompatibilities(level, new, versions)
    assert [f"in the {side} schema has no default" in one for side, one in zip(sides, found, strict=True)] == (
        [True] * len(sides)
    )


def test_another_kind_is_never_compatible() -> None:
    other = parse(Source(SchemaKind.JSON, "{}"))
    (found,) = incompatibilities(Level.BACKWARD, other, [ONE])
    assert "the reader is JSON, the writer AVRO" in found
    assert incompatibilities(Level.NONE, other, [ONE]) == []
