"""An Avro schema as the rest of the room uses it: one tree with full names, and the schema as fastavro reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.schemas.avro.logical import is_valid
from headwater.schemas.avro.names import NAMED
from headwater.schemas.avro.resolving import Resolver
from headwater.schemas.avro.texts import canonical, normalized
from headwater.schemas.texts import MAX_LEVELS, read_json, refuse

MAX_TYPES = 20_000
"""The most types in a schema with its references, each field and branch counted."""


@dataclass(frozen=True, slots=True)
class AvroModel:
    """An Avro schema with its references put in."""

    tree: Any
    """The schema as JSON data. Names are full names; a type is defined where it comes first. Only logical types that
    are valid for their type are in it, because readers ignore the others."""
    schema: Any
    """The same, as `fastavro.parse_schema` returns it."""


def parse(text: str, references: tuple[tuple[str, str], ...], strict: bool) -> tuple[str, str, AvroModel]:
    """The canonical text, the normalized text and the model of an Avro schema.

    With `strict`, namespaces and defaults are checked, as for a new schema. Without it they are not, because old
    registries have schemas that break these rules.
    """
    from fastavro import parse_schema

    resolver = Resolver(strict)
    for name, one in references:
        where = f"Reference {name!r}"
        resolver.resolve(where, read_json(where, one))
    where = "The Avro schema"
    tree = resolver.resolve(where, read_json(where, text))
    whole = _Inliner(resolver.definitions).inlined(tree, 0)
    # Defaults have been checked above, by stricter rules than fastavro's own, which refuse 0 as a double.
    schema = parse_schema(whole, _ignore_default_error=True)
    return canonical(tree), normalized(tree), AvroModel(whole, schema)


def definitions_of(tree: Any) -> dict[str, Any]:
    """The types of a model's tree that have names, by their full names."""
    found: dict[str, Any] = {}
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            if one["type"] in NAMED:
                found[one["name"]] = one
            todo.extend(field["type"] for field in one.get("fields", ()) if one["type"] in ("record", "error"))
            todo.extend(one[part] for part in ("items", "values") if part in one and one["type"] in ("array", "map"))
    return found


class _Inliner:
    """Puts the definition of every type where the type comes first."""

    def __init__(self, definitions: dict[str, dict[str, Any]]) -> None:
        self._definitions = definitions
        self._seen: set[str] = set()
        self._types = 0

    def inlined(self, tree: Any, depth: int) -> Any:
        self._types += 1
        if depth > MAX_LEVELS:
            refuse("The Avro schema", "its references", f"with them it is nested deeper than {MAX_LEVELS} levels")
        if self._types > MAX_TYPES:
            refuse("The Avro schema", "its references", f"with them it has more than {MAX_TYPES} types")
        if isinstance(tree, list):
            return [self.inlined(branch, depth + 1) for branch in tree]
        if isinstance(tree, str):
            if tree not in self._definitions:
                return tree
            tree = self._definitions[tree]
        if tree["type"] in NAMED:
            if tree["name"] in self._seen:
                return tree["name"]
            self._seen.add(tree["name"])
        whole = {name: value for name, value in tree.items() if name != "logicalType" or is_valid(tree)}
        for part in ("items", "values"):
            if part in tree and tree["type"] in ("array", "map"):
                whole[part] = self.inlined(tree[part], depth + 1)
        if tree["type"] in ("record", "error"):
            whole["fields"] = [{**field, "type": self.inlined(field["type"], depth + 1)} for field in tree["fields"]]
        return whole
