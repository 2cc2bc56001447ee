"""A JSON Schema as a tree of kinds, for comparing: what it says about strings, about objects and so on, each by itself.

A schema that says several things at once, such as a type and an enumeration, is the combination of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.schemas.jsonschema.bundling import follow
from headwater.schemas.jsonschema.model import JsonModel
from headwater.schemas.texts import sorted_json, write_json

_KEYWORDS = {
    "array": (
        *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"),
        *("contains", "minContains", "maxContains"),
    ),
    "object": (
        *("properties", "required", "minProperties", "maxProperties", "dependencies", "dependentRequired"),
        *("dependentSchemas", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
    ),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
}
"""By type, the keywords that are about it. They say what a schema without `type` is about."""

_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_BESIDE = frozenset(
    {"$ref", "$schema", "$comment", "title", "description", "definitions", "$defs", "default", "examples"}
)
"""Members that change nothing beside a `$ref`."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One thing that a schema says."""

    kind: str
    """`string`, `number`, `boolean`, `null`, `object`, `array`, `enum`, `const`, `not`, `if`, `combined`, `anything` or
    `nothing`."""
    node: dict[str, Any]
    """The schema that says it."""
    criterion: str = ""
    """Of a combination: `allOf`, `anyOf` or `oneOf`."""
    parts: tuple[Any, ...] = ()
    """Of a combination: schemas, or views of the same schema."""

    @property
    def text(self) -> str:
        """A text that is the same for two views that say the same."""
        return f"{self.kind} {write_json(sorted_json(self.node))}"


class Views:
    """The views of one schema. Each part of the schema has one view, so that views can be told apart by identity."""

    def __init__(self, model: JsonModel) -> None:
        self._whole = model.schema
        self._old = model.draft in ("4", "6", "7")
        self._prefixed = model.draft == "2020-12"
        self._views: dict[int, View] = {}
        self._kept: list[Any] = []
        """What was made for views: as long as it is here, its identity is not used again."""

    def root(self) -> View:
        """The view of the whole schema."""
        return self.of(self._whole)

    def of(self, node: Any) -> View:
        """The view of a part of the schema. References are followed."""
        if isinstance(node, View):
            return node
        if isinstance(node, bool):
            return _ANYTHING if node else _NOTHING
        if id(node) not in self._views:
            self._kept.append(node)
            self._views[id(node)] = self._made(node)
        return self._views[id(node)]

    def _made(self, node: dict[str, Any]) -> View:
        if "$ref" in node:
            target = follow(self._whole, node["$ref"])
            if self._old or _BESIDE.issuperset(node):
                return self.of(target)
            rest = {name: value for name, value in node.items() if name != "$ref"}
            return View("combined", node, "allOf", (target, rest))
        views = [
            View("combined", node, criterion, tuple(node[criterion]))
            for criterion in _COMBINATIONS
            if criterion in node
        ]
        views += self._typed(node)
        views += [View(kind, node) for kind in ("enum", "const", "not", "if") if kind in node]
        if not views:
            return View("anything", node)
        return views[0] if len(views) == 1 else View("combined", node, "allOf", tuple(views))

    def _typed(self, node: dict[str, Any]) -> list[View]:
        types = node.get("type")
        if types is None:
            return [View(kind, node) for kind, names in _KEYWORDS.items() if any(name in node for name in names)]
        if isinstance(types, str):
            return [View(_kind(types), node)]
        views = tuple(View(_kind(one), {**node, "type": one}) for one in types)
        return [*views] if len(views) == 1 else [View("combined", node, "anyOf", views)]

    def items(self, node: dict[str, Any]) -> tuple[Any, list[Any], Any]:
        """Of an array: the schema of all elements, those of the first ones, and that of the others, or None."""
        if self._prefixed:
            first = node.get("prefixItems")
            items = node.get("items")
            if first is None and not isinstance(items, bool):
                return items, [], None
            return None, first or [], items
        items = node.get("items")
        if isinstance(items, list):
            return None, items, node.get("additionalItems")
        return items, [], node.get("additionalItems")


_ANYTHING, _NOTHING = View("anything", {}), View("nothing", {})


def _kind(name: str) -> str:
    return "number" if name == "integer" else name
