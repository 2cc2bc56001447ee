"""Texts of Avro schemas that are the same for the same schema: the canonical one and the normalized one.

The canonical text is what Avro's Java library prints: spaces and the order of known attributes do not matter, the order
of other attributes and of aliases does. In the normalized text it does not either. In both, types that references
define are names.
"""

from __future__ import annotations

from typing import Any

from headwater.schemas.avro.names import NAMED, PRIMITIVES, short_name
from headwater.schemas.texts import sorted_json, write_json

_SCHEMA = frozenset({"type", "name", "doc", "aliases", "fields", "items", "values", "symbols", "size"})
_FIELD = frozenset({"type", "name", "doc", "aliases", "default", "order"})
_FIRST = ("logicalType", "precision", "scale")


def canonical(tree: Any) -> str:
    """The text of a resolved schema, for comparing."""
    return write_json(_Printer(normal=False).type(tree, ""))


def normalized(tree: Any) -> str:
    """The text of a resolved schema, for comparing under `normalize`."""
    return write_json(_Printer(normal=True).type(tree, ""))


class _Printer:
    def __init__(self, normal: bool) -> None:
        self._normal = normal

    def type(self, tree: Any, namespace: str) -> Any:
        if isinstance(tree, list):
            return [self.type(branch, namespace) for branch in tree]
        if isinstance(tree, str):
            return tree if tree in PRIMITIVES else short_name(tree, namespace)
        kind = tree["type"]
        if kind in NAMED:
            return self._definition(tree, namespace)
        extras = self._extras(tree, _SCHEMA)
        if kind in PRIMITIVES:
            return {"type": kind, **extras} if extras else kind
        part = "items" if kind == "array" else "values"
        return {"type": kind, part: self.type(tree[part], namespace), **extras}

    def _definition(self, tree: dict[str, Any], namespace: str) -> dict[str, Any]:
        kind = tree["type"]
        space, _, name = tree["name"].rpartition(".")
        printed: dict[str, Any] = {"type": kind, "name": name}
        if space != namespace:
            printed["namespace"] = space
        if "doc" in tree and (tree["doc"] or not self._normal):
            printed["doc"] = tree["doc"]
        reserved = _SCHEMA
        if kind == "enum":
            printed["symbols"] = tree["symbols"]
            reserved |= {"default"}
            if "default" in tree:
                printed["default"] = tree["default"]
        elif kind == "fixed":
            printed["size"] = tree["size"]
        else:
            printed["fields"] = [self._field(field, space) for field in tree["fields"]]
        printed.update(self._extras(tree, reserved))
        if "aliases" in tree:
            printed["aliases"] = [short_name(alias, space) for alias in self._aliases(tree)]
        return printed

    def _field(self, field: dict[str, Any], namespace: str) -> dict[str, Any]:
        printed = {"name": field["name"], "type": self.type(field["type"], namespace)}
        if "doc" in field:
            printed["doc"] = field["doc"]
        if "default" in field:
            printed["default"] = sorted_json(field["default"]) if self._normal else field["default"]
        if field.get("order", "ascending") != "ascending":
            printed["order"] = field["order"]
        if "aliases" in field:
            printed["aliases"] = self._aliases(field)
        return {**printed, **self._extras(field, _FIELD)}

    def _aliases(self, tree: dict[str, Any]) -> list[str]:
        return sorted(set(tree["aliases"])) if self._normal else list(dict.fromkeys(tree["aliases"]))

    def _extras(self, tree: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
        """Attributes beyond those that the specification reserves."""
        extras = {name: value for name, value in tree.items() if name not in reserved}
        if not self._normal:
            return extras
        first = {name: extras.pop(name) for name in _FIRST if name in extras}
        return {**first, **{name: sorted_json(extras[name]) for name in sorted(extras)}}
