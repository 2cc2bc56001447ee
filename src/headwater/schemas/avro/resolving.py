"""From the JSON of an Avro schema to types whose names are full names, with every rule of the specification checked.

A resolved type is a primitive's name, a full name, a list (a union), or a dict with the attributes of the schema in
their order. A flaw is a `BadSchema` that names its place.
"""

from __future__ import annotations

from typing import Any

from headwater.schemas.avro.defaults import Fitting
from headwater.schemas.avro.names import NAMED, PRIMITIVES, full_name, is_name, is_namespace, namespace_of
from headwater.schemas.texts import MAX_LEVELS, refuse, step

MAX_FIXED = (1 << 31) - 1
"""The greatest size of a fixed type."""

_ORDERS = ("ascending", "descending", "ignore")
_RESERVED = frozenset({"type", "name", "namespace", "doc", "aliases", "fields", "items", "values", "symbols", "size"})


class Resolver:
    """Resolves the references of a schema, one after the other, and then the schema itself."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self._where = "The Avro schema"
        self._unchecked: list[tuple[str, Any, Any]] = []
        self.definitions: dict[str, dict[str, Any]] = {}
        """Every type with a name that was defined so far, by its full name."""

    def resolve(self, where: str, value: object) -> Any:
        """The resolved type of one text. Names refer to types of this text and of those resolved before."""
        self._where = where
        tree = self._type(value, "", "", 0)
        fitting = Fitting(self.definitions)
        for place, default, kind in self._unchecked:
            if not fitting.fits(default, kind):
                refuse(where, place, "the default value does not fit the type of the field")
        self._unchecked.clear()
        return tree

    def _type(self, value: object, namespace: str, place: str, depth: int) -> Any:
        if depth > MAX_LEVELS:
            refuse(self._where, place[:200], f"it is nested deeper than {MAX_LEVELS} levels")
        if isinstance(value, str):
            return self._named(value, namespace, place)
        if isinstance(value, list):
            return self._union(value, namespace, place, depth)
        if not isinstance(value, dict):
            refuse(self._where, place, "a type is a name, an object or a list")
        kind = value.get("type")
        if not isinstance(kind, str):
            refuse(self._where, step(place, "type"), "the object needs a `type` that is a name")
        if kind in PRIMITIVES:
            return {"type": kind, **_extras(value)}
        if kind == "array":
            return {"type": kind, "items": self._part(value, "items", namespace, place, depth), **_extras(value)}
        if kind == "map":
            return {"type": kind, "values": self._part(value, "values", namespace, place, depth), **_extras(value)}
        if kind in NAMED:
            return self._definition(kind, value, namespace, place, depth)
        return self._named(kind, namespace, step(place, "type"))

    def _part(self, value: dict[str, Any], name: str, namespace: str, place: str, depth: int) -> Any:
        if name not in value:
            refuse(self._where, place, f"the {value['type']} has no `{name}`")
        return self._type(value[name], namespace, step(place, name), depth + 1)

    def _named(self, name: str, namespace: str, place: str) -> str:
        if name in PRIMITIVES:
            return name
        full = full_name(name, namespace).removeprefix(".")
        if full not in self.definitions:
            refuse(self._where, place, f"the type {full!r} is not defined before this place, nor in a reference")
        return full

    def _union(self, branches: list[Any], namespace: str, place: str, depth: int) -> list[Any]:
        resolved: list[Any] = []
        seen: set[str] = set()
        for at, branch in enumerate(branches):
            here = step(place, at)
            if isinstance(branch, list):
                refuse(self._where, here, "a union is not directly inside of a union")
            tree = self._type(branch, namespace, here, depth + 1)
            label = branch_name(tree)
            if label in seen:
                refuse(self._where, here, f"the union has {label!r} twice")
            seen.add(label)
            resolved.append(tree)
        return resolved

    def _definition(self, kind: str, value: dict[str, Any], namespace: str, place: str, depth: int) -> dict[str, Any]:
        full = self._name(value, namespace, place)
        if full in self.definitions:
            refuse(self._where, step(place, "name"), f"the type {full!r} is defined twice")
        inner = namespace_of(full)
        tree: dict[str, Any] = {"type": kind, "name": full}
        if isinstance(value.get("doc"), str):
            tree["doc"] = value["doc"]
        aliases = self._aliases(value, place)
        if aliases:
            tree["aliases"] = [full_name(alias, inner).removeprefix(".") for alias in aliases]
        self.definitions[full] = tree
        if kind == "enum":
            self._symbols(tree, value, place)
        elif kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FIXED:
                refuse(self._where, step(place, "size"), f"the size is not an integer between 0 and {MAX_FIXED}")
            tree["size"] = size
        else:
            tree["fields"] = []
            self._fields(tree, value, inner, place, depth)
        tree.update(_extras(value, but="default" if kind == "enum" else ""))
        return tree

    def _name(self, value: dict[str, Any], namespace: str, place: str) -> str:
        name = value.get("name")
        if not isinstance(name, str) or not name:
            refuse(self._where, place, f"the {value['type']} has no `name`")
        space, dot, short = name.rpartition(".")
        if not dot:
            given = value.get("namespace", namespace)
            space = given if isinstance(given, str) else namespace
        if not is_name(short):
            refuse(self._where, step(place, "name"), f"{short!r} is no name: letters, digits and `_`, no digit first")
        if self._strict and not is_namespace(space):
            refuse(self._where, step(place, "namespace"), f"{space!r} is no namespace: names with dots between them")
        if not space and short in PRIMITIVES:
            refuse(self._where, step(place, "name"), f"{short!r} is the name of a primitive type")
        return full_name(short, space)

    def _aliases(self, value: dict[str, Any], place: str) -> list[str]:
        aliases = value.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) and alias for alias in aliases):
            refuse(self._where, step(place, "aliases"), "aliases are a list of names")
        return aliases

    def _symbols(self, tree: dict[str, Any], value: dict[str, Any], place: str) -> None:
        symbols = value.get("symbols")
        here = step(place, "symbols")
        if not isinstance(symbols, list):
            refuse(self._where, here, "the enum has no list of symbols")
        seen: set[str] = set()
        for at, symbol in enumerate(symbols):
            if not is_name(symbol):
                refuse(self._where, step(here, at), f"{symbol!r} is no name: letters, digits and `_`, no digit first")
            if symbol in seen:
                refuse(self._where, step(here, at), f"the symbol {symbol!r} is there twice")
            seen.add(symbol)
        tree["symbols"] = symbols
        if value.get("default") is not None:
            if value["default"] not in symbols:
                refuse(self._where, step(place, "default"), "the default of the enum is none of its symbols")
            tree["default"] = value["default"]

    def _fields(self, tree: dict[str, Any], value: dict[str, Any], namespace: str, place: str, depth: int) -> None:
        fields = value.get("fields")
        if not isinstance(fields, list):
            refuse(self._where, step(place, "fields"), "the record has no list of fields")
        seen: set[str] = set()
        for at, field in enumerate(fields):
            here = step(step(place, "fields"), at)
            resolved = self._field(field, namespace, here, depth)
            if resolved["name"] in seen:
                refuse(self._where, here, f"the record has two fields with the name {resolved['name']!r}")
            seen.add(resolved["name"])
            tree["fields"].append(resolved)

    def _field(self, field: Any, namespace: str, place: str, depth: int) -> dict[str, Any]:
        if not isinstance(field, dict):
            refuse(self._where, place, "a field is an object")
        name = field.get("name")
        if not is_name(name):
            refuse(self._where, step(place, "name"), f"{name!r} is no name: letters, digits and `_`, no digit first")
        if "type" not in field:
            refuse(self._where, place, f"the field {name!r} has no `type`")
        resolved: dict[str, Any] = {
            "name": name,
            "type": self._type(field["type"], namespace, step(place, "type"), depth + 1),
        }
        if isinstance(field.get("doc"), str):
            resolved["doc"] = field["doc"]
        if "default" in field:
            if self._strict:
                self._unchecked.append((step(place, "default"), field["default"], resolved["type"]))
            resolved["default"] = field["default"]
        if "order" in field:
            order = str(field["order"]).lower()
            if order not in _ORDERS:
                refuse(self._where, step(place, "order"), "the order is `ascending`, `descending` or `ignore`")
            resolved["order"] = order
        aliases = self._aliases(field, place)
        if aliases:
            resolved["aliases"] = aliases
        for key, extra in field.items():
            if key not in ("name", "type", "doc", "default", "order", "aliases"):
                resolved[key] = extra
        return resolved


def branch_name(tree: Any) -> str:
    """The name of a branch of a union: two branches with the same name cannot be told apart."""
    if isinstance(tree, str):
        return tree
    name: str = tree["name"] if tree["type"] in NAMED else tree["type"]
    return name


def _extras(value: dict[str, Any], but: str = "") -> dict[str, Any]:
    """Attributes that the specification does not reserve, such as `logicalType`."""
    return {name: extra for name, extra in value.items() if name not in _RESERVED and name != but}
